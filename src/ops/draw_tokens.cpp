// SPDX-License-Identifier: Apache-2.0
#include "ops/draw_tokens.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>

#include "base/error.h"
#include "ops/op.h"
#include "tensor/upload.h"

namespace apus::ops {
namespace {

// Every quantity is a column [n, 1] or rows [n, V].
struct Rows {
  at::Tensor logit, weight;                                       // exp((logit - largest) / temperature)
  at::Tensor top_k, top_p, min_p, epsilon_cutoff, number, total;  // total: of the weights
};

// The place, by falling logit, of the token that is drawn among those that the filters keep. weight: in that order.
at::Tensor place_among_best(const Rows& r, const at::Tensor& logit, const at::Tensor& weight) {
  const int64_t vocab = logit.size(1);
  const at::Tensor has_k = (r.top_k > 0) & (r.top_k < vocab), has_p = r.top_p < 1;
  const at::Tensor first = (at::arange(vocab, logit.options().dtype(at::kLong)) == 0).unsqueeze(0);
  const at::Tensor last_k = (at::where(has_k, r.top_k, at::full_like(r.top_k, vocab)) - 1).to(at::kLong);
  at::Tensor kept = logit >= logit.gather(1, last_k);  // with all that equal the last
  const at::Tensor whole = at::where(has_k, (weight * kept).sum(1, true), r.total);
  kept = kept & (~has_p | (weight.cumsum(1) - weight < r.top_p * whole));
  kept = (kept & (weight >= r.min_p)) | first;
  const at::Tensor left = at::where(has_k | has_p | (r.min_p > 0), (weight * kept).sum(1, true), r.total);
  kept = (kept & (weight >= (r.epsilon_cutoff * left).clamp_max(1))) | first;
  const at::Tensor sums = (weight * kept).cumsum(1);
  return (sums <= r.number * sums.narrow(1, vocab - 1, 1)).sum(1, true).clamp_max(vocab - 1);
}

// `filters`: some row has one.
at::Tensor drawn(const Rows& r, bool filters) {
  const at::Tensor sums = r.weight.cumsum(1);
  const int64_t vocab = sums.size(1);
  const at::Tensor of_all = (sums <= r.number * sums.narrow(1, vocab - 1, 1)).sum(1, true).clamp_max(vocab - 1);
  if (!filters) return of_all;
  const auto [logit, id] = at::sort(r.logit, /*stable=*/true, 1, /*descending=*/true);
  const at::Tensor best = id.gather(1, place_among_best(r, logit, r.weight.gather(1, id)));
  const at::Tensor filtered =
      ((r.top_k > 0) & (r.top_k < vocab)) | (r.top_p < 1) | (r.min_p > 0) | (r.epsilon_cutoff > 0);
  return at::where(filtered, best, of_all);
}

bool any_filters(const at::Tensor& rule) {
  const auto* const table = reinterpret_cast<const DrawRule*>(rule.data_ptr<double>());
  return std::any_of(table, table + rule.size(0), [](const DrawRule& r) {
    return r.temperature == 0 || r.top_k > 0 || r.top_p < 1 || r.min_p > 0 || r.epsilon_cutoff > 0;
  });
}

// In f64 on the host, whatever the device.
at::Tensor reference(const at::Tensor& logits, const at::Tensor& rule) {
  const at::Tensor rows = rule.select(1, 0).to(at::kLong);
  return draw_where_they_lie(logits.index_select(0, rows.to(logits.device())).to(at::kCPU, at::kDouble), rule)
      .to(logits.device(), at::kFloat);
}

at::Tensor shape(const at::Tensor& logits, const at::Tensor& rule) {
  return at::empty({rule.size(0), 2}, logits.options().dtype(at::kFloat));
}

}  // namespace

at::Tensor draw_where_they_lie(const at::Tensor& logits_nV, const at::Tensor& rule) {
  const at::Tensor x = widen(logits_nV), table = uploaded(rule.to(x.scalar_type()), x.device());
  const auto column = [&](int64_t i) { return table.narrow(1, i, 1); };
  const at::Tensor greedy = column(1) == 0;
  const at::Tensor scaled = x / at::where(greedy, at::ones_like(column(1)), column(1).clamp_min(1e-30));
  const at::Tensor usable = at::isfinite(x.amax(1, true));
  Rows r{.logit = x,
         .weight = at::where(usable, (scaled - scaled.amax(1, true)).exp(), at::ones_like(x)),
         .top_k = column(2),
         .top_p = at::where(greedy, at::zeros_like(column(3)), column(3)),  // which keeps the first alone
         .min_p = column(4),
         .epsilon_cutoff = column(5),
         .number = column(6),
         .total = {}};
  r.total = r.weight.sum(1, true);
  const at::Tensor token = drawn(r, any_filters(rule)), asked = column(7), counts = at::where(asked == 2, scaled, x);
  const at::Tensor logprob = counts.gather(1, token) - at::logsumexp(counts, 1, true);
  const at::Tensor id = at::where(usable, token.to(x.scalar_type()), -at::ones_like(asked));
  return at::cat({id, at::where(usable & (asked > 0), logprob, at::zeros_like(asked))}, 1);
}

bool draws_tokens(at::Device device) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("apus::draw_tokens", "");
  return op.hasKernelForDispatchKey(c10::computeDispatchKey(at::kFloat, kNone, device));
}

at::Tensor draw_tokens(const at::Tensor& logits_RV, const std::vector<DrawRule>& rules) {
  static const auto op = handle<decltype(reference)>("apus::draw_tokens");
  require(logits_RV.size(1) <= int64_t{1} << 24, Fault::Bug, "draw_tokens: ", logits_RV.size(1),
          " tokens are more than f32 can number");
  const BelowAutograd guard;
  const at::ArrayRef<double> numbers(reinterpret_cast<const double*>(rules.data()), rules.size() * kDrawColumns);
  return op.call(logits_RV, at::tensor(numbers, at::kDouble).view({-1, kDrawColumns}));
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) { m.def("draw_tokens(Tensor logits, Tensor rule) -> Tensor"); }
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("draw_tokens", apus::ops::reference); }
TORCH_LIBRARY_IMPL(apus, Meta, m) { m.impl("draw_tokens", apus::ops::shape); }
