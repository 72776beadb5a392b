// SPDX-License-Identifier: Apache-2.0
// Where the trainer's micro-batches come from.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "train/batch.h"

namespace apus {

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // To the epoch's beginning; its order depends on the seed and the epoch alone.
  virtual void start(int64_t epoch) = 0;
  virtual std::optional<Batch> next() = 0;  // on the host; nothing at the epoch's end
  virtual int64_t size() const = 0;         // micro-batches of an epoch; -1: not known (streaming)
  virtual Json position() const = 0;        // from which restore() gives the same next() again
  virtual void restore(const Json& position) = 0;
};

}  // namespace apus
