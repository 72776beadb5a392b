// SPDX-License-Identifier: Apache-2.0
// Some rows of an embedding, and of a head that is tied to it, as an adapter's own: the table stays as it is, and only
// these rows have gradients and states (PEFT's trainable_token_indices).
#pragma once

#include <vector>

#include "nn/linear.h"

namespace apus {

class TokenRows final : public Delta {
 public:
  // `before_ND`: what the table has in these rows, of `words`. looks_up: of an embedding, otherwise of a head.
  TokenRows(const std::vector<int64_t>& rows, int64_t words, const at::Tensor& before_ND, bool looks_up);

  at::Tensor apply(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight, const Step& s,
                   Memo* memo = nullptr) const override;
  bool looks_at_weight() const override { return false; }
  at::Tensor merged(const at::Tensor& weight) const override;
  std::pair<at::Tensor, at::Tensor> columns(const at::Tensor& x_TD, const Step& s) const override;

  Param& rows() { return rows_; }

 private:
  const bool looks_up_;
  const int64_t words_;
  at::Tensor row_N, before_ND;  // moved to where the tokens are, should ranks keep weights on the host
  at::Tensor place_V;           // of an embedding: which of the rows a word's is; N: none of them
  Param& rows_;                 // [N, D], whole rows, whatever PEFT calls them
};

}  // namespace apus
