// SPDX-License-Identifier: Apache-2.0
// Rows through a decoder that is given no words, with a cache of its own: one stretch of one sequence behind the other.
#pragma once

#include <memory>

#include "models/decoder.h"

namespace apus {

// All rows of one sequence at once, without a cache -> hidden_TD.
at::Tensor hidden_of_rows(const Decoder& decoder, at::Tensor row_TD);

class RowStepper {
 public:
  // `options`: type and device of the cache, which holds at most so many rows. The decoder must outlive it.
  RowStepper(const Decoder& decoder, at::TensorOptions options, int64_t most);
  // `position`: [T] or [3, T]; undefined: these rows stand behind those before them.
  at::Tensor read(const at::Tensor& row_TD, at::Tensor position = {});  // -> hidden_TD
  void restart() { read_ = 0; }

 private:
  const Decoder& decoder_;
  const int64_t most_;
  std::unique_ptr<KvCache> cache_;
  at::Tensor blocks_;
  int64_t read_ = 0;
};

}  // namespace apus
