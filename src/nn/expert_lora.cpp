// SPDX-License-Identifier: Apache-2.0
// Shapes: M token-expert pairs in the order of the experts, E experts, R rank.
#include "nn/expert_lora.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "nn/capsule.h"
#include "nn/dropout.h"
#include "nn/lora.h"

namespace apus {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The factors of one matrix: E tensors A [R, I], then E tensors B [O, R].
struct Part {
  int64_t column, out;  // of y
  double scale;
  Dropout drop;
};
struct Parts {
  std::vector<Part> list;
  ops::ExpertPairs pairs;  // that the rows are
};

// In x's type. Converted factors become one stack: two steps of a device instead of one for every expert.
std::vector<at::Tensor> typed(at::TensorList factors, at::ScalarType type) {
  if (factors[0].scalar_type() == type) return factors.vec();
  return {at::stack(factors).to(type)};
}

// y + scale * dropout(x) A' B' of every part, added into y in place. Of the forward pass x and [M, R] are kept. An
// expert without rows gives its factors no gradient, as if it had not run.
struct LowRankRuns : torch::autograd::Function<LowRankRuns> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y_MO, const at::Tensor& x_MI,
                            const at::Tensor& ends, at::TensorList factors, const Parts& parts) {
    const auto type = x_MI.scalar_type();
    const auto experts = static_cast<size_t>(ends.size(0));
    variable_list kept{x_MI, ends};
    at::Tensor y = y_MO;
    for (size_t i = 0; i < parts.list.size(); ++i) {
      const Part& p = parts.list[i];
      const at::TensorList a = factors.slice(2 * i * experts, experts),
                           b = factors.slice((2 * i + 1) * experts, experts);
      const at::Tensor h_MR = ops::grouped_linear(p.drop(x_MI), typed(a, type), ends).mul_(p.scale * p.drop.factor());
      y.narrow(1, p.column, p.out).add_(ops::grouped_linear(h_MR, typed(b, type), ends));
      kept.push_back(h_MR);
    }
    kept.insert(kept.end(), factors.begin(), factors.end());
    ctx->save_for_backward(kept);
    ctx->saved_data["parts"] = encapsulated(parts);
    ctx->mark_dirty({y});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto kept = ctx->get_saved_variables();
    const auto& parts = held<Parts>(ctx->saved_data["parts"]);
    const at::Tensor &x_MI = kept[0], &ends = kept[1], &dy_MO = grads[0];
    const auto type = x_MI.scalar_type();
    const size_t experts = static_cast<size_t>(ends.size(0)), count = parts.list.size();
    const at::TensorList factors = at::TensorList(kept).slice(2 + count);
    variable_list out(3 + factors.size() + 1);
    const auto give = [&](const at::Tensor& stack, size_t first) {  // the factors' gradients
      const at::Tensor wide = stack.to(factors[first].scalar_type());
      for (size_t e = 0; e < experts; ++e)
        if (parts.pairs.count()[e] > 0) out[3 + first + e] = wide[static_cast<int64_t>(e)];
    };
    out[0] = dy_MO;
    for (size_t i = 0; i < count; ++i) {
      const Part& p = parts.list[i];
      const size_t a = 2 * i * experts, b = a + experts;
      const bool need_a = ctx->needs_input_grad(3 + a), need_b = ctx->needs_input_grad(3 + b),
                 need_x = ctx->needs_input_grad(1);
      auto [dh_MR, db] =
          ops::grouped_linear_backward(dy_MO.narrow(1, p.column, p.out), kept[2 + i],
                                       typed(factors.slice(b, experts), type), ends, {need_a || need_x, need_b});
      if (need_b) give(db, b);
      if (!need_a && !need_x) continue;
      const auto [dx, da] =
          ops::grouped_linear_backward(dh_MR.mul_(p.scale * p.drop.factor()), p.drop(x_MI),
                                       typed(factors.slice(a, experts), type), ends, {need_x, need_a});
      if (need_a) give(da, a);
      if (need_x) out[1] = out[1].defined() ? out[1].add_(p.drop(dx)) : p.drop(dx);
    }
    return out;
  }
};

Lora& lora_of(const Linear& layer, const std::string& adapter) {
  return static_cast<Lora&>(*layer.adapters().at(adapter));
}

}  // namespace

bool can_be_grouped(const ExpertMatrices& experts) {
  if (experts.empty()) return true;  // of gates, where experts have none
  const auto& first = experts[0]->adapters();
  for (const Linear* expert : experts) {
    if (expert->adapters().size() != first.size()) return false;
    for (const auto& [name, delta] : expert->adapters()) {
      const auto like = first.find(name);
      const auto *mine = dynamic_cast<const Lora*>(delta),
                 *other = like == first.end() ? nullptr : dynamic_cast<const Lora*>(like->second);
      if (!mine || !other || mine->spec().dora || other->spec().dora || mine->spec().biased || other->spec().biased ||
          mine->spec().rank != other->spec().rank || mine->spec().scale() != other->spec().scale() ||
          mine->spec().dropout != other->spec().dropout)
        return false;
    }
  }
  return true;
}

ExpertLora::ExpertLora(const ops::ExpertPairs& pairs, int64_t tokens, const Step& s) : step_(s), all_(pairs) {
  for (const auto& group : s.adapters) {
    if (group.rows.size(0) == tokens) {
      shares_.push_back({group.name, {}, pairs});
      continue;
    }
    const at::Tensor rows = at::isin(pairs.token, group.rows).nonzero().squeeze(1);
    if (rows.size(0) > 0) shares_.push_back({group.name, rows, ops::pairs_at(pairs, rows)});
  }
}

at::Tensor ExpertLora::operator()(at::Tensor y_MO, const at::Tensor& x_MI, const std::vector<Side>& sides) const {
  if (!step_.routed) {
    std::vector<std::string> names;
    for (const Side& side : sides)
      for (const auto& [name, delta] : side.here.front()->adapters())
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    for (const std::string& name : names) y_MO = change(y_MO, x_MI, sides, name, all_);
    return y_MO;
  }
  for (const Share& share : shares_) {
    if (!share.rows.defined()) {
      y_MO = change(y_MO, x_MI, sides, share.name, share.pairs);
      continue;
    }
    const at::Tensor some = change(at::index_select(y_MO, 0, share.rows), at::index_select(x_MI, 0, share.rows), sides,
                                   share.name, share.pairs);
    y_MO = at::index_copy(y_MO, 0, share.rows, some);
  }
  return y_MO;
}

at::Tensor ExpertLora::change(at::Tensor y_MO, const at::Tensor& x_MI, const std::vector<Side>& sides,
                              const std::string& adapter, const ops::ExpertPairs& pairs) const {
  Parts parts{.list = {}, .pairs = pairs};
  std::vector<at::Tensor> factors;
  int64_t column = 0;
  const int64_t out = y_MO.size(1) / std::ssize(sides);
  for (const Side& side : sides) {
    if (side.here.front()->adapters().count(adapter)) {
      Lora &first = lora_of(*side.first, adapter), &own = lora_of(*side.here.front(), adapter);
      parts.list.push_back(
          {column, out, own.spec().scale(), Dropout::of(own.spec().dropout, first.spec().id, step_, own.a())});
      for (const Linear* expert : side.here) factors.push_back(lora_of(*expert, adapter).a().data);
      for (const Linear* expert : side.here) factors.push_back(lora_of(*expert, adapter).b().data);
    }
    column += out;
  }
  return parts.list.empty() ? y_MO : LowRankRuns::apply(y_MO, x_MI, pairs.ends, at::TensorList(factors), parts);
}

}  // namespace apus
