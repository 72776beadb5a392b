// SPDX-License-Identifier: Apache-2.0
// Steps of one token a sequence as work that the device has recorded (device/device.h): the host asks for a step at
// once, and not operator by operator, which for small models takes longer than the step itself. There is a recording
// for each number of sequences, rounded up: rows that are too many read and write nothing of the cache.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "device/device.h"
#include "engine/step_numbers.h"
#include "models/model.h"

namespace apus {

class RecordedDecode {
 public:
  // On the device of `options`; `block_size`: positions in a block of the cache. No recorder: nothing is possible.
  RecordedDecode(at::TensorOptions options, int64_t block_size, Recorder recorder);
  ~RecordedDecode();

  // Whether this device, model and cache allow it.
  bool possible(const Model& model, const KvCache& cache) const;
  // Logits [S, V], valid until the next call; undefined: it turned out that this model's work cannot be recorded. All
  // sequences go through the adapter of that name, where `numbers` are routed; "": through none. id_S: their tokens,
  // where only the device knows them; undefined: `numbers` have them.
  at::Tensor operator()(const Model& model, KvCache& cache, const StepNumbers& numbers, const std::string& adapter,
                        const at::Tensor& id_S = {});
  // The model's tensors, its adapters or the cache lie elsewhere from now on.
  void forget();

 private:
  struct Recorded;
  using Key = std::tuple<int64_t, int64_t, bool, std::string>;  // rows, blocks a sequence, routed, adapter

  std::unique_ptr<Recorded> blank(int64_t rows, int64_t width, KvCache& cache) const;
  void fill(Recorded& r, const StepNumbers& numbers, const at::Tensor& id_S) const;
  void prepare(Recorded& r, const Model& model, const StepNumbers& numbers) const;
  at::Tensor compute(const Recorded& r, const Model& model) const;
  void record(Recorded& r, const Model& model);

  const at::TensorOptions options_;
  const int64_t block_size_;
  const Recorder recorder_;
  bool impossible_ = false;
  std::map<Key, std::unique_ptr<Recorded>> recorded_;
};

}  // namespace apus
