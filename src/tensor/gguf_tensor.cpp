// SPDX-License-Identifier: Apache-2.0
#include "tensor/gguf_tensor.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "base/error.h"
#include "tensor/dtype.h"

namespace apus {

namespace {

// A few thousand numbers at a time, so that the f32 values stay in the cache.
constexpr int64_t kTogether = 1 << 14;

template <class T>
void read_as(const GgufSlice& slice, T* out) {
  const int64_t width = slice.width, whole = slice.together();
  const int64_t step = std::max<int64_t>(1, kTogether / std::max<int64_t>(1, width * whole)) * whole;
  at::parallel_for(0, (slice.rows + step - 1) / step, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> numbers(static_cast<size_t>(std::min(step, slice.rows) * width));
    for (int64_t first = begin * step; first < std::min(end * step, slice.rows); first += step) {
      const int64_t count = std::min(step, slice.rows - first);
      slice.read_rows(first, count, numbers.data());
      std::transform(numbers.begin(), numbers.begin() + count * width, out + first * width,
                     [](float value) { return static_cast<T>(value); });
    }
  });
}

at::Tensor bytes_tensor(const GgufSlice& slice) {
  at::Tensor out = at::empty(slice.shape, at::kByte);
  uint8_t* to = out.data_ptr<uint8_t>();
  at::parallel_for(0, slice.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) slice.read_bytes(i, to + i * slice.width);
  });
  return out;
}

}  // namespace

DiskType gguf_disk_type(const GgufSlice& slice) {
  if (slice.bytes_of != GgufSlice::Bytes::No) return DiskType::U8;
  if (slice.type() == GgmlType::F16) return DiskType::F16;
  return slice.type() == GgmlType::BF16 ? DiskType::BF16 : DiskType::F32;
}

at::Tensor gguf_tensor(const std::shared_ptr<const GgufModel>& model, const GgufSlice& slice, at::ScalarType wide) {
  const at::ScalarType own = torch_type(gguf_disk_type(slice));
  if (slice.bytes_of != GgufSlice::Bytes::No) return bytes_tensor(slice);
  const std::byte* data = slice.parts[0].data;
  if (slice.plain() && slice.bytes() > 0 &&
      std::bit_cast<uintptr_t>(data) % static_cast<uintptr_t>(disk_size(gguf_disk_type(slice))) == 0)
    // at::Tensor knows no const; nobody writes to loaded weights in place.
    return at::from_blob(
        const_cast<std::byte*>(data), slice.shape, [model](void*) {}, at::TensorOptions().dtype(own));
  const bool mixed = std::any_of(slice.parts.begin(), slice.parts.end(),
                                 [](const GgufPart& part) { return ggml_form(part.type).quantised(); });
  const at::ScalarType type = mixed ? wide : own;
  at::Tensor out = at::empty(slice.shape, at::TensorOptions().dtype(type));
  if (type == at::kFloat)
    read_as(slice, out.data_ptr<float>());
  else if (type == at::kBFloat16)
    read_as(slice, out.data_ptr<at::BFloat16>());
  else if (type == at::kHalf)
    read_as(slice, out.data_ptr<at::Half>());
  else
    fail(Fault::Bug, "quantised weights are not made ", c10::toString(type));
  return out;
}

}  // namespace apus
