// SPDX-License-Identifier: Apache-2.0
// One AdamW step in place with moments of one byte each: value = map(code) * scale, where 256 elements share a scale,
// their largest value. The maps spend most codes near zero: squares with a sign for the first moment, fourth powers for
// the second (whose root divides). Codes are rounded in proportion (tensor/dither.h), so that slow decay is not lost.
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "tensor/byte_dither.h"

namespace apus::ops {
namespace {

// x times its block's scale, in place.
at::Tensor scaled(at::Tensor x, const at::Tensor& scale) {
  const int64_t n = x.numel(), whole = n / kMomentBlock * kMomentBlock;
  if (whole) x.narrow(0, 0, whole).view({-1, kMomentBlock}).mul_(scale.narrow(0, 0, whole / kMomentBlock).unsqueeze(1));
  if (whole < n) x.narrow(0, whole, n - whole).mul_(scale.narrow(0, whole / kMomentBlock, 1));
  return x;
}

// Each block's largest magnitude; returns x over it.
at::Tensor normalised(const at::Tensor& x, at::Tensor scale) {
  const int64_t n = x.numel(), whole = n / kMomentBlock * kMomentBlock;
  if (whole)
    scale.narrow(0, 0, whole / kMomentBlock).copy_(x.narrow(0, 0, whole).view({-1, kMomentBlock}).abs().amax(1));
  if (whole < n) scale.narrow(0, whole / kMomentBlock, 1).copy_(x.narrow(0, whole, n - whole).abs().max());
  return scaled(x.clone(), scale.reciprocal().nan_to_num_(0, 0, 0));
}

at::Tensor read_mean(const at::Tensor& code, const at::Tensor& scale) {
  at::Tensor x = code.to(at::kFloat);
  return scaled(x.div_(127).mul_(x.abs()), scale);
}
at::Tensor read_square(const at::Tensor& code, const at::Tensor& scale) {
  return scaled(code.to(at::kFloat).div_(255).square_().square_(), scale);
}
// Bytes from codes, which come times 256: rounded to nearest, and what is left above a byte decides by its threshold.
at::Tensor bytes(const at::Tensor& code, const at::Tensor& threshold) {
  return code.round().add_(threshold).div_(256).floor_();
}
void write_mean(at::Tensor code, const at::Tensor& scale, const at::Tensor& value, const at::Tensor& threshold) {
  const at::Tensor x = normalised(value, scale);
  code.copy_(bytes(x.abs().sqrt_().mul_(127 * 256).mul_(x.sign()), threshold).clamp_(-127, 127));
}
void write_square(at::Tensor code, const at::Tensor& scale, const at::Tensor& value, const at::Tensor& threshold) {
  at::Tensor x = normalised(value, scale);
  const at::Tensor least = x.gt(0).to(at::kFloat).mul_(256);  // a positive value never becomes zero: it divides
  code.copy_(bytes(x.clamp_(0, 1).sqrt_().sqrt_().mul_(255 * 256).max(least), threshold).clamp_(0, 255));
}

void reference(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& m_scale, at::Tensor& v,
               at::Tensor& v_scale, const OptionalTensor& master, double lr, double beta1, double beta2, double eps,
               double weight_decay, int64_t step, double grad_scale, int64_t dither, bool stochastic) {
  require(param.is_contiguous(), Fault::Bug, "adamw_8bit is for contiguous parameters");
  const at::Tensor flat_grad = grad.contiguous().view(-1);
  const double correct1 = 1 - std::pow(beta1, static_cast<double>(step)),
               correct2 = std::sqrt(1 - std::pow(beta2, static_cast<double>(step)));
  for (int64_t begin = 0; begin < param.numel(); begin += kDitherChunk) {  // a cache's worth at a time
    const int64_t n = std::min(kDitherChunk, param.numel() - begin);
    const auto part = [&](const at::Tensor& t) { return t.view(-1).narrow(0, begin, n); };
    const auto blocks = [&](const at::Tensor& t) {
      return t.narrow(0, begin / kMomentBlock, (n + kMomentBlock - 1) / kMomentBlock);
    };
    const auto thresholds = [&](int64_t start) { return byte_dither(begin, n, start, param.device()).to(at::kFloat); };
    const at::Tensor g = part(flat_grad).to(at::kFloat) * grad_scale;
    const at::Tensor mean = read_mean(part(m), blocks(m_scale)).mul_(beta1).add_(g, 1 - beta1);
    const at::Tensor square = read_square(part(v), blocks(v_scale)).mul_(beta2).addcmul_(g, g, 1 - beta2);
    at::Tensor target = part(param), wide = master.has_value() ? part(*master) : target.to(at::kFloat);
    wide.mul_(1 - lr * weight_decay).addcdiv_(mean, square.sqrt().div_(correct2).add_(eps), -lr / correct1);
    if (stochastic && target.scalar_type() == at::kBFloat16)
      round_stochastic_(target, wide, advanced(dither, begin));
    else if (!target.is_same(wide))
      target.copy_(wide);
    write_mean(part(m), blocks(m_scale), mean, thresholds(dither + kMeanDither));
    write_square(part(v), blocks(v_scale), square, thresholds(dither + kSquareDither));
  }
}

void shape(at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&, const OptionalTensor&,
           double, double, double, double, double, int64_t, double, int64_t, bool) {}

}  // namespace

void adamw_8bit(at::Tensor& param, const at::Tensor& grad, Moments8& moments, at::Tensor& master, const AdamwStep& s) {
  static const auto op = handle<decltype(reference)>("apus::adamw_8bit");
  const BelowAutograd guard;
  op.call(param, grad, moments.mean, moments.mean_scale, moments.square, moments.square_scale, maybe(master), s.lr,
          s.beta1, s.beta2, s.eps, s.weight_decay, s.step, s.grad_scale, s.dither, s.stochastic);
}

at::Tensor read_moment(const at::Tensor& code, const at::Tensor& scale) {
  return code.scalar_type() == at::kChar ? read_mean(code, scale) : read_square(code, scale);
}

void write_moment(at::Tensor code, at::Tensor scale, const at::Tensor& value, int64_t dither) {
  const at::Tensor threshold = byte_dither(0, code.numel(), dither, code.device()).to(at::kFloat);
  code.scalar_type() == at::kChar ? write_mean(code, scale, value, threshold)
                                  : write_square(code, scale, value, threshold);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // m int8, v uint8, of param's number of elements; scales f32, one for 256 elements. master: as for adamw. dither:
  // where the thresholds begin by which the codes are rounded and, when `stochastic`, a bf16 param.
  m.def(
      "adamw_8bit(Tensor(a!) param, Tensor grad, Tensor(b!) m, Tensor(c!) m_scale, Tensor(d!) v, Tensor(e!) v_scale, "
      "Tensor(f!)? master, float lr, float beta1, float beta2, float eps, float weight_decay, int step, "
      "float grad_scale, int dither, bool stochastic) -> ()");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("adamw_8bit", apus::ops::reference); }
TORCH_LIBRARY_IMPL(apus, Meta, m) { m.impl("adamw_8bit", apus::ops::shape); }
