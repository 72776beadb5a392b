// SPDX-License-Identifier: Apache-2.0
#include "quant/narrow.h"

#include "quant/numbers.h"

namespace apus::quant {

void to_bf16(const float* from, int64_t count, uint16_t* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = float_to_bf16(from[i]);
}

void to_f16(const float* from, int64_t count, uint16_t* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = float_to_f16(from[i]);
}

void numbers_of(const StoredTensor& tensor, float* to) {
  const int64_t count = tensor.count();
  if (tensor.type == DiskType::F32) {
    std::memcpy(to, tensor.data, static_cast<size_t>(tensor.bytes));
  } else if (tensor.type == DiskType::BF16) {
    for (int64_t i = 0; i < count; ++i) to[i] = bf16_to_float(tensor.at<uint16_t>(i));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = number_at(tensor, i);
  }
}

}  // namespace apus::quant
