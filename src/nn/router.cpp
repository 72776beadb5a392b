// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, E experts, k experts per token, G groups.
#include "nn/router.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "nn/steady.h"

namespace apus {

namespace {

// Experts of closed groups can not be chosen.
at::Tensor in_open_groups(const at::Tensor& rank_TE, const RouterForm& form) {
  const int64_t tokens = rank_TE.size(0), experts = rank_TE.size(1);
  const at::Tensor by_group = rank_TE.view({tokens, form.groups, experts / form.groups});
  const at::Tensor best_TG =
      form.two_best ? std::get<0>(by_group.topk(2, -1)).sum(-1) : std::get<0>(by_group.topk(1, -1)).squeeze(-1);
  const at::Tensor open_TG =
      at::zeros(best_TG.sizes(), best_TG.options()).scatter(1, std::get<1>(best_TG.topk(form.open_groups, -1)), 1);
  const at::Tensor closed_TE =
      (open_TG == 0).unsqueeze(-1).expand({tokens, form.groups, experts / form.groups}).reshape({tokens, experts});
  return rank_TE.masked_fill(closed_TE, -std::numeric_limits<double>::infinity());
}

// The share of the best expert, or of the one that is told, among those near it.
std::pair<at::Tensor, at::Tensor> nearest_share(const at::Tensor& left_TE, const at::Tensor& logits_TE, double nearness,
                                                const at::Tensor& told_T1 = {}) {
  at::Tensor far_TE, best_T1;
  {
    at::NoGradGuard choosing;
    at::Tensor most_T1;
    std::tie(most_T1, best_T1) = left_TE.max(-1, /*keepdim=*/true);
    if (told_T1.defined()) best_T1 = told_T1, most_T1 = left_TE.gather(1, told_T1);
    far_TE = (most_T1 - logits_TE) / at::maximum(logits_TE.abs(), most_T1) > 2 * nearness;
  }
  const double closed = -std::numeric_limits<double>::infinity();
  return {at::softmax(left_TE.masked_fill(far_TE, closed), -1).gather(1, best_T1), best_T1};
}

ops::Routing two_by_nearness(const at::Tensor& logits_TE, double nearness, const at::Tensor& told_T2 = {}) {
  const auto told = [&](int64_t i) { return told_T2.defined() ? told_T2.narrow(1, i, 1) : at::Tensor(); };
  const auto [first, one] = nearest_share(logits_TE, logits_TE, nearness, told(0));
  const at::Tensor left_TE = logits_TE.scatter(1, one, -std::numeric_limits<double>::infinity());
  const auto [second, two] = nearest_share(left_TE, logits_TE, nearness, told(1));
  return {at::cat({first, second}, 1), at::cat({one, two}, 1)};
}

at::Tensor shares(const at::Tensor& logits_TE, const RouterForm& form) {
  const at::Tensor wide_TE = logits_TE.scalar_type() == at::kDouble ? logits_TE : logits_TE.to(at::kFloat);
  if (form.root_softplus) return steady_softplus(wide_TE).sqrt();
  return form.sigmoid ? steady_sigmoid(wide_TE) : at::softmax(wide_TE, -1);
}

ops::Routing weighed(const at::Tensor& share_TE, const at::Tensor& expert_Tk, const RouterForm& form,
                     at::ScalarType type) {
  at::Tensor weight_Tk = share_TE.gather(1, expert_Tk);
  if (form.normalise) weight_Tk = weight_Tk / (weight_Tk.sum(-1, /*keepdim=*/true) + form.beside_sum);
  if (form.scale != 1) weight_Tk = weight_Tk * form.scale;
  return {weight_Tk.to(type), expert_Tk};
}
}  // namespace

ops::Routing route_to(const at::Tensor& expert_Tk, const at::Tensor& logits_TE, const RouterForm& form) {
  return weighed(shares(logits_TE, form), expert_Tk, form, logits_TE.scalar_type());
}

ops::Routing route_as_told(const ops::Routing& own, const at::Tensor& told_Tk, const at::Tensor& logits_TE,
                           const RouterForm& form) {
  const at::Tensor expert_Tk = at::where(told_Tk < 0, own.expert_Tk, told_Tk);
  return form.nearness > 0 ? two_by_nearness(logits_TE, form.nearness, expert_Tk)
                           : route_to(expert_Tk, logits_TE, form);
}

ops::Routing route(const at::Tensor& logits_TE, const RouterForm& form, int64_t per_token,
                   const at::Tensor& correction_E) {
  if (form.nearness > 0) return two_by_nearness(logits_TE, form.nearness);
  const bool usual =
      !form.sigmoid && !form.root_softplus && form.groups == 1 && form.scale == 1 && !correction_E.defined();
  if (usual) return ops::route_topk(logits_TE, per_token, form.normalise);
  const at::Tensor share_TE = shares(logits_TE, form);
  at::Tensor expert_Tk;
  {
    at::NoGradGuard choosing;
    at::Tensor rank_TE = share_TE.detach();
    if (correction_E.defined()) rank_TE = rank_TE + correction_E.reshape({-1});
    if (form.groups > 1) rank_TE = in_open_groups(rank_TE, form);
    expert_Tk = std::get<1>(rank_TE.topk(per_token, -1));
  }
  return weighed(share_TE, expert_Tk, form, logits_TE.scalar_type());
}

ops::Routing within_capacity(ops::Routing routing, int64_t experts, const ExpertCapacity& capacity) {
  const int64_t choices = routing.expert_Tk.numel();
  if (capacity.factor <= 0 || choices == 0) return routing;
  const auto room =
      static_cast<int64_t>(std::ceil(static_cast<double>(choices) / static_cast<double>(experts) * capacity.factor));
  at::Tensor kept_Tk;
  {
    at::NoGradGuard choosing;
    // The choices in the order in which experts take them, and then those of each expert together.
    const at::Tensor expert = routing.expert_Tk.flatten();
    at::Tensor order = at::arange(choices, expert.options());
    if (!capacity.by_position)
      order = std::get<1>(routing.weight_Tk.detach().flatten().sort(/*stable=*/true, 0, /*descending=*/true));
    const auto [by_expert, again] = expert.index_select(0, order).sort(/*stable=*/true, 0, /*descending=*/false);
    const at::Tensor sent =
        at::zeros({experts}, expert.options()).scatter_add(0, expert, at::ones({choices}, expert.options()));
    const at::Tensor first = sent.cumsum(0) - sent;
    const at::Tensor taken = at::arange(choices, expert.options()) - first.index_select(0, by_expert) < room;
    kept_Tk = at::zeros({choices}, taken.options()).scatter(0, order.index_select(0, again), taken);
  }
  routing.weight_Tk = routing.weight_Tk * kept_Tk.view_as(routing.expert_Tk).to(routing.weight_Tk.scalar_type());
  return routing;
}

}  // namespace apus
