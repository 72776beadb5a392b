// SPDX-License-Identifier: Apache-2.0
// The change of one layer's weight that an adapter's configuration means, without values.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/adapter_file.h"
#include "nn/vera.h"

namespace apus {

struct DeltaPlace {
  std::string module;
  Adaptable::Sides sides;
  // Keeps dropout masks and first values of layers apart. 0: an embedding.
  uint64_t id = 0;
  const Param* bias = nullptr;  // of the layer; null: none, or it is added elsewhere
  std::shared_ptr<SharedMatrices> shared = nullptr;
};

// What layers of these kinds share; null: nothing. `widest`: the most inputs and outputs of any of the layers. Those of
// a file, if it has them, else drawn.
std::shared_ptr<SharedMatrices> shared_matrices(const LoraConfig& config, Adaptable::Sides widest,
                                                const AdapterFile* file);

// Fault::Usage or Model for a layer that this kind cannot be on.
std::unique_ptr<TrainedDelta> make_delta(const LoraConfig& config, const DeltaPlace& place);

}  // namespace apus
