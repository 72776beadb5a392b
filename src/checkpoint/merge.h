// SPDX-License-Identifier: Apache-2.0
// Adapters folded into a model's files, tensor by tensor: memory is one tensor, whatever the model's size. No model
// code is needed: an adapter's names say which tensors it changes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

namespace apus {

struct MergePart {
  std::filesystem::path adapter;
  double weight = 1;  // share of the adapter's change
};

struct MergeSpec {
  std::filesystem::path base;
  std::vector<MergePart> parts;
  std::filesystem::path output;  // made whole or not at all
  int64_t max_shard = 5'000'000'000;
  std::optional<at::ScalarType> dtype;  // of the result; absent: every tensor keeps the base's
  std::function<void(int64_t done, int64_t of)> progress = [](int64_t, int64_t) {};
};

struct MergeReport {
  int64_t tensors = 0, changed = 0, shards = 0, bytes = 0;
};

// W + sum over adapters of weight * (merged W - W), computed in f32 and rounded once. No adapter: the base anew.
MergeReport merge_adapters(const MergeSpec& spec);

}  // namespace apus
