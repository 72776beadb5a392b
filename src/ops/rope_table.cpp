// SPDX-License-Identifier: Apache-2.0
#include "ops/rope_table.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cmath>

#include "ops/op.h"

namespace apus::ops {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

// By the host, whatever the device.
Pair reference(const at::Tensor& position, at::ArrayRef<double> inverse, at::IntArrayRef axis, double scale,
               bool backwards) {
  const int64_t tokens = position.size(-1), r = std::ssize(inverse);
  const at::Tensor place = position.to(at::kCPU, at::kLong).contiguous();
  const int64_t* const p = place.data_ptr<int64_t>();
  at::Tensor cos = at::empty({tokens, r}, at::kFloat), sin = at::empty({tokens, r}, at::kFloat);
  float *c = cos.data_ptr<float>(), *s = sin.data_ptr<float>();
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < r; ++i) {
      const auto at = static_cast<size_t>(i);
      const double angle = static_cast<float>(p[axis[at] * tokens + t]) * static_cast<float>(inverse[at]);
      c[t * r + i] = static_cast<float>(std::cos(angle) * scale);
      s[t * r + i] = static_cast<float>(std::sin(backwards ? -angle : angle) * scale);
    }
  return {cos.to(position.device()), sin.to(position.device())};
}

Pair shape(const at::Tensor& position, at::ArrayRef<double> inverse, at::IntArrayRef, double, bool) {
  const at::TensorOptions options = position.options().dtype(at::kFloat);
  const int64_t sizes[] = {position.size(-1), std::ssize(inverse)};
  return {at::empty(sizes, options), at::empty(sizes, options)};
}

}  // namespace

bool makes_rope_tables(at::Device device) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("apus::rope_table", "");
  return op.hasKernelForDispatchKey(c10::computeDispatchKey(at::kLong, kNone, device));
}

Pair rope_table(const at::Tensor& position, const std::vector<float>& inverse, const std::vector<int>& axis,
                double scale, bool backwards) {
  static const auto op = handle<decltype(reference)>("apus::rope_table");
  const BelowAutograd guard;
  const std::vector<double> wide(inverse.begin(), inverse.end());
  const std::vector<int64_t> axes(axis.begin(), axis.end());
  return op.call(position, wide, axes, scale, backwards);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  m.def(
      "rope_table(Tensor position, float[] inverse, int[] axis, float scale, bool backwards) -> (Tensor cos, Tensor "
      "sin)");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("rope_table", apus::ops::reference); }
TORCH_LIBRARY_IMPL(apus, Meta, m) { m.impl("rope_table", apus::ops::shape); }
