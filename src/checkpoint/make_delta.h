// SPDX-License-Identifier: Apache-2.0
// The change of one layer's weight that an adapter's configuration means, without values.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/adapter_config.h"
#include "nn/trained_delta.h"

namespace apus {

struct DeltaPlace {
  std::string module;
  Adaptable::Sides sides;
  // Keeps dropout masks and first values of layers apart. 0: an embedding.
  uint64_t id = 0;
  const Param* bias = nullptr;  // of the layer; null: none, or it is added elsewhere
};

// Fault::Usage or Model for a layer that this kind cannot be on.
std::unique_ptr<TrainedDelta> make_delta(const LoraConfig& config, const DeltaPlace& place);

}  // namespace apus
