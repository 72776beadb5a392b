// SPDX-License-Identifier: Apache-2.0
// The sum that a head keeps of its keys and values, in chunks of tokens: inside a chunk all tokens meet as in
// attention, between chunks goes the sum alone. Corrections (shares) of one chunk depend on each other in a row; they
// are solved for together, as a triangular system.
#include "ops/state_scan.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "ops/op.h"

namespace apus::ops {
namespace {

constexpr int64_t kChunk = 64;

// The tokens of each sequence in chunks of one length, the last filled up with tokens that change nothing.
class Chunks {
 public:
  Chunks(at::IntArrayRef lengths, at::Device device) {
    const int64_t longest = lengths.empty() ? 1 : *std::max_element(lengths.begin(), lengths.end());
    size_ = std::clamp<int64_t>(longest, 1, kChunk);
    std::vector<int64_t> place;
    for (size_t s = 0; s < lengths.size(); ++s)
      for (int64_t i = 0; i < lengths[s]; ++i) {
        if (i % size_ == 0) sequence_.push_back(s);
        place.push_back((std::ssize(sequence_) - 1) * size_ + i % size_);
      }
    place_ = at::tensor(place, at::kLong).to(device);
  }
  int64_t count() const { return std::ssize(sequence_); }
  size_t sequence(int64_t chunk) const { return sequence_[static_cast<size_t>(chunk)]; }
  bool begins(int64_t chunk) const { return chunk == 0 || sequence(chunk) != sequence(chunk - 1); }
  // [T, N, ...] -> [M, N, size, ...]
  at::Tensor cut(const at::Tensor& x) const {
    std::vector<int64_t> shape = x.sizes().vec();
    shape[0] = count() * size_;
    const at::Tensor all = at::zeros(shape, x.options()).index_copy(0, place_, x);
    return all.unflatten(0, {count(), size_}).transpose(1, 2);
  }
  // [M, N, size, V] -> [T, N, V]
  at::Tensor joined(const at::Tensor& x) const { return at::index_select(x.transpose(1, 2).flatten(0, 1), 0, place_); }
  // [size, size]: the column stands after the row.
  at::Tensor later(at::Device device) const {
    return at::ones({size_, size_}, at::TensorOptions().dtype(at::kBool).device(device)).triu(1);
  }

 private:
  int64_t size_ = 1;
  std::vector<size_t> sequence_;  // of each chunk
  at::Tensor place_;
};

// One token of each sequence. state [S, N, K, V] -> {y, state behind it}
std::pair<at::Tensor, at::Tensor> one_token(const StateInputs& in, const at::Tensor& state) {
  const int64_t each = in.v_TNV.size(1) / in.q_TGK.size(1);
  const at::Tensor q = in.q_TGK.repeat_interleave(each, 1).unsqueeze(-1),
                   k = in.k_TGK.repeat_interleave(each, 1).unsqueeze(-1);
  const at::Tensor kept = in.decay_TN.exp().unsqueeze(-1);
  at::Tensor sum = state * (kept.dim() == 4 ? kept : kept.unsqueeze(-1)), v = in.v_TNV;
  if (in.share_TN.defined()) v = (v - (sum * k).sum(2)) * in.share_TN.unsqueeze(-1);
  sum = sum + k * v.unsqueeze(2);
  return {(sum * q).sum(2), sum};
}

// Where each number of a key has a decay of its own.
at::Tensor by_tokens(const StateInputs& in, at::IntArrayRef lengths, std::vector<at::Tensor>* state) {
  const auto at_token = [](const at::Tensor& x, int64_t t) { return x.defined() ? x.narrow(0, t, 1) : x; };
  std::vector<at::Tensor> out;
  int64_t t = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    at::Tensor sum = state ? (*state)[s].unsqueeze(0)
                           : at::zeros({1, in.v_TNV.size(1), in.q_TGK.size(2), in.v_TNV.size(2)}, in.v_TNV.options());
    for (const int64_t end = t + lengths[s]; t < end; ++t) {
      auto [y, behind] = one_token({at_token(in.q_TGK, t), at_token(in.k_TGK, t), at_token(in.v_TNV, t),
                                    at_token(in.decay_TN, t), at_token(in.share_TN, t)},
                                   sum);
      out.push_back(std::move(y)), sum = std::move(behind);
    }
    if (state) (*state)[s] = sum.squeeze(0);
  }
  return at::cat(out, 0);
}

// state [S, N, K, V] before the tokens and then behind them; null: they are zero, and nobody asks.
at::Tensor by_chunks(const StateInputs& in, at::IntArrayRef lengths, std::vector<at::Tensor>* state) {
  if (in.decay_TN.dim() == 3) return by_tokens(in, lengths, state);
  const Chunks chunks(lengths, in.q_TGK.device());
  const int64_t heads = in.v_TNV.size(1), width = in.v_TNV.size(2), each = heads / in.q_TGK.size(1);
  const auto of_heads = [&](const at::Tensor& x_TGK) {
    const at::Tensor x = chunks.cut(x_TGK);
    return each == 1 ? x : x.repeat_interleave(each, 1);
  };
  const at::Tensor q = of_heads(in.q_TGK), k = of_heads(in.k_TGK);
  const at::Tensor decay = chunks.cut(in.decay_TN).cumsum(-1);  // from the chunk's begin
  // What is left at a row's token of what its column's token brought.
  const at::Tensor left = (decay.unsqueeze(-1) - decay.unsqueeze(-2))
                              .masked_fill(chunks.later(q.device()), -std::numeric_limits<double>::infinity())
                              .exp();
  const at::Tensor since = decay.exp().unsqueeze(-1), whole = decay.narrow(-1, decay.size(-1) - 1, 1);
  const at::Tensor seen = at::matmul(q, k.transpose(-1, -2)) * left, into = q * since,
                   out_of = k.transpose(-1, -2) * (whole - decay).exp().unsqueeze(-2),
                   through = whole.exp().unsqueeze(-1);
  at::Tensor value = chunks.cut(in.v_TNV), known;
  if (in.share_TN.defined()) {
    const at::Tensor share = chunks.cut(in.share_TN).unsqueeze(-1);
    const at::Tensor on_others = (at::matmul(k, k.transpose(-1, -2)) * left * share).tril(-1);
    const at::Tensor solved =
        at::linalg_solve_triangular(on_others, at::cat({value * share, k * share * since}, -1), /*upper=*/false,
                                    /*left=*/true, /*unitriangular=*/true);
    value = solved.narrow(-1, 0, width), known = solved.narrow(-1, width, k.size(-1));
  }
  std::vector<at::Tensor> out;
  at::Tensor sum;
  for (int64_t m = 0; m < chunks.count(); ++m) {
    const size_t s = chunks.sequence(m);
    if (chunks.begins(m)) sum = state ? (*state)[s] : at::Tensor();
    at::Tensor brought = value[m];
    if (sum.defined() && known.defined()) brought = brought - at::matmul(known[m], sum);
    const at::Tensor inside = at::matmul(seen[m], brought);
    out.push_back(sum.defined() ? inside + at::matmul(into[m], sum) : inside);
    const at::Tensor added = at::matmul(out_of[m], brought);
    sum = sum.defined() ? sum * through[m] + added : added;
    if (state) (*state)[s] = sum;
  }
  return chunks.joined(at::stack(out));
}

StateInputs rows_of(const StateInputs& in, const at::Tensor& rows) {
  const auto pick = [&](const at::Tensor& x) { return x.defined() ? at::index_select(x, 0, rows) : x; };
  return {pick(in.q_TGK), pick(in.k_TGK), pick(in.v_TNV), pick(in.decay_TN), pick(in.share_TN)};
}

// The sequences of which one token comes, all at once, and the others by chunks.
at::Tensor forward_on(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                      const OptionalTensor& share, at::IntArrayRef lengths, const at::Tensor& seat, at::Tensor& state) {
  const StateInputs in{q, k, v, decay, or_undefined(share)};
  std::vector<int64_t> single, single_rows, longer, longer_rows, longer_lengths;
  int64_t begin = 0;
  for (size_t s = 0; s < lengths.size(); begin += lengths[s++]) {
    const bool one = lengths[s] == 1;
    (one ? single : longer).push_back(static_cast<int64_t>(s));
    for (int64_t i = 0; i < lengths[s]; ++i) (one ? single_rows : longer_rows).push_back(begin + i);
    if (!one) longer_lengths.push_back(lengths[s]);
  }
  const auto index = [&](const std::vector<int64_t>& list) { return at::tensor(list, at::kLong).to(q.device()); };
  at::Tensor out = at::empty(v.sizes(), v.options());
  if (!single.empty()) {
    const at::Tensor seats = at::index_select(seat, 0, index(single)), rows = index(single_rows);
    const auto [y, behind] = one_token(rows_of(in, rows), at::index_select(state, 0, seats));
    out.index_copy_(0, rows, y);
    state.index_copy_(0, seats, behind);
  }
  if (!longer.empty()) {
    const at::Tensor seats = at::index_select(seat, 0, index(longer)), rows = index(longer_rows);
    std::vector<at::Tensor> states = at::index_select(state, 0, seats).unbind(0);
    out.index_copy_(0, rows, by_chunks(rows_of(in, rows), longer_lengths, &states));
    state.index_copy_(0, seats, at::stack(states));
  }
  return out;
}

at::Tensor forward_on_shape(const at::Tensor&, const at::Tensor&, const at::Tensor& v, const at::Tensor&,
                            const OptionalTensor&, at::IntArrayRef, const at::Tensor&, at::Tensor&) {
  return at::empty(v.sizes(), v.options());
}

// Keeps the inputs alone: what chunks make of them is many times their size, and made again for the gradient.
struct StateScan : torch::autograd::Function<StateScan> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& decay, const OptionalTensor& share,
                            at::IntArrayRef lengths) {
    const BelowAutograd guard;
    const at::Tensor some_share = or_undefined(share);
    ctx->save_for_backward({q, k, v, decay, some_share});
    ctx->saved_data["lengths"] = lengths.vec();
    return by_chunks({q, k, v, decay, some_share}, lengths, nullptr);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    std::vector<at::Tensor> inputs;
    for (const at::Tensor& x : ctx->get_saved_variables())
      inputs.push_back(x.defined() ? x.detach().requires_grad_() : x);
    const at::AutoGradMode again(true);
    const at::Tensor out = by_chunks({inputs[0], inputs[1], inputs[2], inputs[3], inputs[4]},
                                     ctx->saved_data["lengths"].toIntVector(), nullptr);
    const bool shares = inputs[4].defined();
    if (!shares) inputs.pop_back();
    auto gradients = torch::autograd::grad({out}, inputs, {grad[0]});
    if (!shares) gradients.emplace_back();
    gradients.emplace_back();
    return gradients;
  }
};

}  // namespace

at::Tensor state_scan(const StateInputs& in, at::IntArrayRef lengths) {
  if (any_requires_grad(in.q_TGK, in.k_TGK, in.v_TNV, in.decay_TN, in.share_TN))
    return StateScan::apply(in.q_TGK, in.k_TGK, in.v_TNV, in.decay_TN, maybe(in.share_TN), lengths);
  return by_chunks(in, lengths, nullptr);
}

at::Tensor state_scan_on(const StateInputs& in, at::IntArrayRef lengths, const at::Tensor& seat_S, at::Tensor state) {
  static const auto op = handle<decltype(forward_on)>("apus::state_scan_on");
  const BelowAutograd guard;
  return op.call(in.q_TGK, in.k_TGK, in.v_TNV, in.decay_TN, maybe(in.share_TN), lengths, seat_S, state);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  m.def(
      "state_scan_on(Tensor q, Tensor k, Tensor v, Tensor decay, Tensor? share, int[] lengths, Tensor seat, Tensor(a!) "
      "state) -> Tensor");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("state_scan_on", apus::ops::forward_on); }
TORCH_LIBRARY_IMPL(apus, Meta, m) { m.impl("state_scan_on", apus::ops::forward_on_shape); }
