// SPDX-License-Identifier: Apache-2.0
// States that go on from what the cache holds: token by token, each head of each sequence by itself. So a token's bits
// do not depend on how its sequence is cut into steps, nor on the others.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "devices/cpu/ops/tensors.h"
#include "devices/cpu/parallel.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

at::Tensor state_scan_on(const at::Tensor& q_TGK, const at::Tensor& k_TGK, const at::Tensor& v_TNV,
                         const at::Tensor& decay_TN, const OptionalTensor& share_TN, at::IntArrayRef lengths,
                         const at::Tensor& seat_S, at::Tensor& state) {
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               const OptionalTensor&, at::IntArrayRef, const at::Tensor&, at::Tensor&);
  if (decay_TN.dim() == 3 || v_TNV.scalar_type() != at::kFloat || state.scalar_type() != at::kFloat ||
      !state.is_contiguous())
    return Reference<Signature>::call("apus::state_scan_on", q_TGK, k_TGK, v_TNV, decay_TN, share_TN, lengths, seat_S,
                                      state);
  const at::Tensor out = at::empty(v_TNV.sizes(), v_TNV.options()), seats = seat_S.contiguous(),
                   decays = decay_TN.contiguous(),
                   shares = share_TN.has_value() ? share_TN->contiguous() : at::Tensor();
  const Lines<float> q(q_TGK), k(k_TGK), v(v_TNV);
  const int64_t heads = v_TNV.size(1), groups = q_TGK.size(1), each = heads / groups, keys = q.width, columns = v.width;
  std::vector<int64_t> begin{0};
  for (const int64_t length : lengths) begin.push_back(begin.back() + length);
  // So many columns of a head's sum stay in the processor's nearest memory from token to token.
  constexpr int64_t kColumns = 64;
  constexpr int64_t kLong = 8;  // tokens from which moving a piece pays
  const int64_t pieces = (columns + kColumns - 1) / kColumns;
  share(static_cast<int64_t>(lengths.size()) * heads * pieces, 1, [&](int64_t first, int64_t last) {
    std::vector<float> decay, corrected;
    at::Tensor together;
    for (int64_t i = first; i < last; ++i) {
      const int64_t s = i / (heads * pieces), head = i / pieces % heads, column = i % pieces * kColumns;
      const int64_t from = begin[static_cast<size_t>(s)], count = begin[static_cast<size_t>(s) + 1] - from;
      decay.resize(static_cast<size_t>(count)), corrected.resize(static_cast<size_t>(count));
      for (int64_t t = 0; t < count; ++t) {
        const int64_t at = (from + t) * heads + head;
        decay[static_cast<size_t>(t)] = std::exp(data<float>(decays)[at]);
        if (shares.defined()) corrected[static_cast<size_t>(t)] = data<float>(shares)[at];
      }
      // A head's line of one token, and how far the next token's is from it.
      const auto line = [&](const Lines<float>& x, int64_t lines, int64_t at) { return x[from * lines + at]; };
      const auto step = [&](const Lines<float>& x, int64_t lines) {
        return count > 1 ? x[(from + 1) * lines] - x[from * lines] : 0;
      };
      const int64_t group = head / each;
      const int64_t some = std::min(kColumns, columns - column);
      const StateTokens tokens{.count = count,
                               .q = line(q, groups, group),
                               .k = line(k, groups, group),
                               .v = line(v, heads, head) + column,
                               .q_step = step(q, groups),
                               .k_step = step(k, groups),
                               .v_step = step(v, heads),
                               .decay = decay.data(),
                               .share = shares.defined() ? corrected.data() : nullptr};
      float* const sum = data<float>(state) + (data<int64_t>(seats)[s] * heads + head) * keys * columns + column;
      float* const y = data<float>(out) + (from * heads + head) * columns + column;
      if (count < kLong || some == columns) {
        kernels().state_tokens(keys, some, tokens, sum, columns, y, heads * columns);
        continue;
      }
      // Rows of a piece lie apart by a power of two, which the nearest memory holds badly: they are copied side by
      // side for a while.
      if (!together.defined()) together = at::empty({keys, kColumns}, state.options());
      float* const near = data<float>(together);
      for (int64_t r = 0; r < keys; ++r) std::copy_n(sum + r * columns, some, near + r * kColumns);
      kernels().state_tokens(keys, some, tokens, near, kColumns, y, heads * columns);
      for (int64_t r = 0; r < keys; ++r) std::copy_n(near + r * kColumns, some, sum + r * columns);
    }
  });
  return out;
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) { m.impl("state_scan_on", apus::cpu::state_scan_on); }
