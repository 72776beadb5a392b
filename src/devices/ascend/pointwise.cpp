// SPDX-License-Identifier: Apache-2.0
// Rotary embedding and swiglu by the vendor's operators; tables of angles and tokens that are drawn on the device;
// linear layers grouped so that swiglu finds its inputs side by side.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "devices/ascend/ops.h"
#include "devices/vendor_op.h"
#include "ops/draw_tokens.h"
#include "ops/op.h"
#include "tensor/upload.h"

namespace apus::ascend {

namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

// Numbers on a device that were asked for before, as copying them has the host wait for it. Few are ever asked for.
at::Tensor kept_there(const std::vector<double>& numbers, at::ScalarType type, at::Device device) {
  using Key = std::tuple<std::vector<double>, at::ScalarType, int>;
  static std::mutex mutex;
  static auto* const kept = new std::map<Key, at::Tensor>;  // never destroyed: the device's library may be gone by then
  const std::lock_guard lock(mutex);
  at::Tensor& there = (*kept)[{numbers, type, device.index()}];
  if (!there.defined()) there = at::tensor(numbers, at::kDouble).to(type).to(device);
  return there;
}

Pair rope_table(const at::Tensor& position, at::ArrayRef<double> inverse, at::IntArrayRef axis, double scale,
                bool backwards) {
  const at::Device device = position.device();
  const at::Tensor inverse_R = kept_there(inverse.vec(), at::kFloat, device);
  const at::Tensor place =
      position.dim() == 1 ? position.unsqueeze(1)
                          : position.index_select(0, kept_there({axis.begin(), axis.end()}, at::kLong, device)).t();
  const at::Tensor angle_TR = place.to(at::kFloat) * inverse_R;
  return {angle_TR.cos().mul_(scale), angle_TR.sin().mul_(backwards ? -scale : scale)};
}

at::Tensor draw_tokens(const at::Tensor& logits, const at::Tensor& rule) {
  std::vector<double> rows;
  for (int64_t i = 0; i < rule.size(0); ++i) rows.push_back(rule.data_ptr<double>()[i * ops::kDrawColumns]);
  const bool all = std::ssize(rows) == logits.size(0) && std::is_sorted(rows.begin(), rows.end()) &&
                   std::adjacent_find(rows.begin(), rows.end()) == rows.end();
  const at::Device device = logits.device();
  return ops::draw_where_they_lie(
      all ? logits : logits.index_select(0, uploaded(at::tensor(rows, at::kDouble).to(at::kLong), device)), rule);
}

// x [T, heads, H] as the operator's layout BSND with one sequence; it turns whole heads only, so a head's unrotated
// rest is cut off and put back.
at::Tensor turned(const at::Tensor& x_TNH, const at::Tensor& cos_1T1H, const at::Tensor& sin_1T1H) {
  static const VendorOp op("npu::npu_rotary_mul");
  const int64_t turning = cos_1T1H.size(-1), rest = x_TNH.size(-1) - turning;
  const at::Tensor x = rest > 0 ? x_TNH.narrow(-1, 0, turning).contiguous() : x_TNH;
  const at::Tensor y = tensor(op({x.unsqueeze(0), cos_1T1H, sin_1T1H})[0]).squeeze(0);
  return rest > 0 ? at::cat({y, x_TNH.narrow(-1, turning, rest)}, -1) : y;
}

Pair rope(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos, const at::Tensor& sin, bool inverse) {
  const auto whole = [&](const at::Tensor& t) {
    return at::cat({t, t}, -1).to(q.scalar_type()).view({1, t.size(0), 1, 2 * t.size(1)});
  };
  const at::Tensor c = whole(cos), s = whole(inverse ? -sin : sin);
  return {turned(q, c, s), turned(k, c, s)};
}

// [gate | up] along the last dimension: as it lies when both are halves of one product, else copied together.
at::Tensor joined(const at::Tensor& gate, const at::Tensor& up) {
  const bool side_by_side = gate.dim() == 2 && gate.strides() == up.strides() && gate.stride(1) == 1 &&
                            gate.storage().data_ptr().get() == up.storage().data_ptr().get() &&
                            gate.storage_offset() + gate.size(1) == up.storage_offset() &&
                            gate.stride(0) >= 2 * gate.size(1);
  if (!side_by_side) return at::cat({gate, up}, -1);
  return gate.as_strided({gate.size(0), 2 * gate.size(1)}, gate.strides(), gate.storage_offset());
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  static const VendorOp op("npu::npu_swiglu");
  return tensor(op({joined(gate, up), -1})[0]);
}

Pair swiglu_backward(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up) {
  static const VendorOp op("npu::npu_swiglu_backward");
  const at::Tensor both = tensor(op({grad, joined(gate, up), -1})[0]);
  const int64_t f = gate.size(-1);
  return {both.narrow(-1, 0, f), both.narrow(-1, f, f)};
}

// A packed weight is the weight itself: what is gained is that neighbouring layers (q, k,
// v; gate, up) become one product.
at::Tensor pack_linear(at::TensorList weights, bool) {
  return weights.size() == 1 ? weights[0].detach() : at::cat(weights, 0);
}

at::Tensor packed_linear(const at::Tensor& x, const at::Tensor& packed, const OptionalTensor& bias, int64_t) {
  return at::linear(x, packed, bias);
}

}  // namespace

std::vector<NativeOp> pointwise_ops() {
  return {native<rope>("rope", {"npu::npu_rotary_mul"}),
          native<swiglu>("swiglu", {"npu::npu_swiglu"}),
          native<swiglu_backward>("swiglu_backward", {"npu::npu_swiglu_backward"}),
          native<pack_linear>("pack_linear", {}),
          native<packed_linear>("packed_linear", {}),
          native<rope_table>("rope_table", {}),
          native<draw_tokens>("draw_tokens", {})};
}

}  // namespace apus::ascend
