// SPDX-License-Identifier: Apache-2.0
#include "nn/lora.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "dist/mesh.h"
#include "nn/capsule.h"
#include "nn/dropout.h"
#include "ops/low_rank.h"
#include "ops/ops.h"
#include "ops/quantised.h"

namespace apus {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool shares_inputs(const Param& a) { return a.part[1].size != a.full[1]; }

// dropout(x) A' of an earlier run, whose y was changed already. Wrapped: no input that a gradient could belong to.
struct Known {
  at::Tensor h_TR;
};

// y + scale * dropout(x) A' B', added into y in place (y is a fresh product that nothing else holds). Of the forward
// pass only x and [T, r] are kept; the dropout mask is made again from its seed.
struct LowRank : torch::autograd::Function<LowRank> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y_TO, const at::Tensor& x_TI,
                            const at::Tensor& own_a_RI, const at::Tensor& own_b_OR, double scale, const Dropout& drop,
                            const Known& known) {
    scale *= drop.factor();
    at::Tensor y = y_TO;
    // A processor's kernels take the factors as they are; elsewhere both passes take the copies that are made here.
    const auto typed = [&](const at::Tensor& t) { return x_TI.is_cpu() ? t : t.to(x_TI.scalar_type()); };
    const at::Tensor a_RI = typed(own_a_RI), b_OR = typed(own_b_OR);
    const at::Tensor h_TR = known.h_TR.defined() ? known.h_TR : ops::add_low_rank(y, drop(x_TI), a_RI, b_OR, scale);
    ctx->save_for_backward({x_TI, a_RI, b_OR, h_TR});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["drop"] = encapsulated(drop);
    if (!known.h_TR.defined()) ctx->mark_dirty({y});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x_TI = saved[0], &a_RI = saved[1], &b_OR = saved[2], &h_TR = saved[3], &dy_TO = grads[0];
    const double scale = ctx->saved_data["scale"].toDouble();
    const Dropout& drop = held<Dropout>(ctx->saved_data["drop"]);
    const auto need = [&](size_t i) { return ctx->needs_input_grad(i); };
    auto [dx, da, db] = ops::low_rank_backward(dy_TO, drop(x_TI), h_TR, a_RI, b_OR, scale, {need(1), need(2), need(3)});
    if (dx.defined()) dx = drop(dx);
    return {dy_TO, dx, da, db, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor with_low_rank(const Delta& owner, const at::Tensor& y_TO, const at::Tensor& x_TI, const at::Tensor& a_RI,
                         const at::Tensor& b_OR, double scale, const Dropout& drop, Memo* memo) {
  if (at::GradMode::is_enabled()) {
    Known known;
    if (memo && memo->again()) known.h_TR = std::move(memo->recall(owner).front());
    return LowRank::apply(y_TO, x_TI, a_RI, b_OR, scale, drop, known);
  }
  at::Tensor y = y_TO;
  const at::Tensor h_TR = ops::add_low_rank(y, drop(x_TI), a_RI, b_OR, scale * drop.factor());
  if (memo) memo->remember(owner, {h_TR});
  return y;
}

std::pair<at::Tensor, at::Tensor> low_rank_columns(const at::Tensor& x_TI, const at::Tensor& a_RI,
                                                   const at::Tensor& b_OR, double scale, Dropout drop) {
  drop.row = 0, drop.origins = nullptr;  // the head is given all tokens, also where the layers were not
  const auto type = x_TI.scalar_type();
  const at::Tensor x = drop.p > 0 ? x_TI * drop(at::ones(x_TI.sizes(), x_TI.options())) : x_TI;
  return {x.mm(a_RI.to(type).t()) * (scale * drop.factor()), b_OR.to(type)};
}

Lora::Lora(Spec spec, const Param* bias)
    : spec_(spec),
      bias_(bias),
      a_(param(spec.looks_up ? "lora_embedding_A" : "lora_A.weight", {spec.rank, spec.in})),
      b_(param(spec.looks_up ? "lora_embedding_B" : "lora_B.weight", {spec.out, spec.rank})) {
  require(!spec.looks_up || !spec.dora, Fault::Bug, "DoRA on an embedding");
  require(spec.rank > 0, Fault::Usage, "the LoRA rank must be above 0, it is ", spec.rank);
  require(!spec.biased || (!spec.looks_up && !spec.dora), Fault::Bug, "lora_bias with DoRA or on an embedding");
  if (spec.dora) magnitude_ = &param("lora_magnitude_vector", {spec.out});
  if (spec.biased) shift_ = &param("lora_B.bias", {spec.out});
}

at::Tensor Lora::apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight, const Step& s,
                       Memo* memo) const {
  if (spec_.dora) return apply_dora(x_TI, y_TO, weight, s);
  if (spec_.looks_up) {
    const at::Tensor a_TR = at::index_select(a_.data, 1, x_TI).t().to(y_TO.scalar_type());
    return at::addmm(y_TO, a_TR, b_.data.to(y_TO.scalar_type()).t(), 1, spec_.scale());
  }
  const Dropout drop = Dropout::of(spec_.dropout, spec_.id, s, a_);
  const auto shifted = [&](const at::Tensor& y) {
    return shift_ ? y + (shift_->data * spec_.scale()).to(y.scalar_type()) : y;
  };
  return shifted(with_low_rank(*this, y_TO, x_TI, a_.data, b_.data, spec_.scale(), drop, memo));
}

// y = bias + m / |W'| * (W x + s B A x). The length |W'| counts as constant in the gradient. With dropout, PEFT feeds
// the dropped x to both products and adds the difference to the plain one.
at::Tensor Lora::apply_dora(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight,
                            const Step& s) const {
  const Dropout drop = Dropout::of(spec_.dropout, spec_.id, s, a_);
  const auto type = x_TI.scalar_type();
  const at::Tensor ratio_O = ratio_.defined() ? ratio_ : ratio_to(weight);
  // By a mask, which the gradient goes through.
  const at::Tensor x = drop.p > 0 ? x_TI * (drop(at::ones(x_TI.sizes(), x_TI.options())) * drop.factor()) : x_TI;
  const at::Tensor base = drop.p > 0 ? ops::linear(x, weight, {}) : bias_ ? y_TO - bias_->data : y_TO;
  // As of plain LoRA: products whose bits do not depend on how many rows there are.
  const at::Tensor low = with_low_rank(*this, at::zeros_like(y_TO), x, a_.data, b_.data, 1, {}, nullptr);
  return y_TO + base * (ratio_O - 1).to(type) + low * (ratio_O * spec_.scale()).to(type);
}

at::Tensor Lora::ratio_to(const at::Tensor& weight) const {
  at::Tensor norms = changed_row_norms(weight, a_.data, b_.data, spec_.scale());
  if (shares_inputs(a_)) {
    norms.square_();
    mesh()->comm(Axis::Tp).all_reduce(norms)->wait();
    norms.sqrt_();
  }
  return magnitude_->data.to(at::kFloat) / norms;
}

void Lora::settle(const at::Tensor& weight, at::ScalarType type) {
  if (magnitude_) ratio_ = ratio_to(weight);
  for (Param* factor : {&a_, &b_, shift_})
    if (factor) factor->data = factor->data.to(type);
}

std::pair<at::Tensor, at::Tensor> Lora::columns(const at::Tensor& x_TI, const Step& s) const {
  require(!spec_.dora && !spec_.looks_up, Fault::Bug, "only plain LoRA can be written as further columns");
  const auto [more_TR, b_OR] =
      low_rank_columns(x_TI, a_.data, b_.data, spec_.scale(), Dropout::of(spec_.dropout, spec_.id, s, a_));
  if (!shift_) return {more_TR, b_OR};
  return {at::cat({more_TR, at::full({x_TI.size(0), 1}, spec_.scale(), x_TI.options())}, 1),
          at::cat({b_OR, shift_->data.to(x_TI.scalar_type()).unsqueeze(1)}, 1)};
}

at::Tensor Lora::merged_rows(const at::Tensor& rows, int64_t first) const {
  at::NoGradGuard no_grad;
  const int64_t count = rows.size(0);
  const at::Tensor a = a_.data.to(at::kFloat), b = b_.data.to(at::kFloat);
  if (spec_.looks_up) return at::addmm(rows.to(at::kFloat), a.narrow(1, first, count).t(), b.t(), 1, spec_.scale());
  const at::Tensor sum = at::addmm(rows.to(at::kFloat), b.narrow(0, first, count), a, 1, spec_.scale());
  if (!magnitude_) return sum;
  return sum * (magnitude_->data.narrow(0, first, count).to(at::kFloat) / sum.norm(2, 1)).unsqueeze(1);
}

void Lora::begin(Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options) {
  init_lora(*this, layer, how, seed, options);
}

at::Tensor Lora::merged_bias(const at::Tensor& bias) const {
  at::NoGradGuard no_grad;
  return bias.to(at::kFloat) + shift_->data.to(at::kFloat) * spec_.scale();
}

at::Tensor changed_row_norms(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scale) {
  at::NoGradGuard no_grad;
  const at::Tensor wide_a = a.detach().to(at::kFloat), wide_b = b.detach().to(at::kFloat);
  at::Tensor norms = at::empty({weight.size(0)}, wide_a.options());
  const int64_t rows = std::max<int64_t>(1, (int64_t{1} << 20) / weight.size(1));  // 4 MB at a time
  for (int64_t at = 0; at < weight.size(0); at += rows) {
    const int64_t count = std::min(rows, weight.size(0) - at);
    const at::Tensor part = at::addmm(ops::plain_rows(weight, at, count).detach().to(at::kFloat),
                                      wide_b.narrow(0, at, count), wide_a, 1, scale);
    norms.narrow(0, at, count).copy_(part.norm(2, 1));
  }
  return norms;
}

}  // namespace apus
