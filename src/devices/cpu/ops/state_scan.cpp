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
  if (v_TNV.scalar_type() != at::kFloat || state.scalar_type() != at::kFloat || !state.is_contiguous())
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
  const int64_t pieces = (columns + kColumns - 1) / kColumns;
  share(static_cast<int64_t>(lengths.size()) * heads * pieces, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t s = i / (heads * pieces), head = i / pieces % heads, column = i % pieces * kColumns;
      float* const sum = data<float>(state) + (data<int64_t>(seats)[s] * heads + head) * keys * columns + column;
      for (int64_t t = begin[static_cast<size_t>(s)]; t < begin[static_cast<size_t>(s) + 1]; ++t) {
        const int64_t at = t * heads + head, of_group = t * groups + head / each;
        kernels().state_token(keys, std::min(kColumns, columns - column),
                              {.q = q[of_group],
                               .k = k[of_group],
                               .v = v[at] + column,
                               .decay = std::exp(data<float>(decays)[at]),
                               .share = shares.defined() ? data<float>(shares)[at] : 0,
                               .corrects = shares.defined()},
                              sum, columns, data<float>(out) + at * columns + column);
      }
    }
  });
  return out;
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) { m.impl("state_scan_on", apus::cpu::state_scan_on); }
