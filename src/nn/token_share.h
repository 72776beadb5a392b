// SPDX-License-Identifier: Apache-2.0
// The tokens of a forward pass, shared out among ranks that read the same rows. Each runs its own tokens through
// everything that looks at one token at a time. Attention looks at whole sequences, and there are two ways to that:
// some ranks share out its heads, which they exchange for tokens before it and exchange back behind it (Ulysses); and
// groups of such ranks let keys and values go round (nn/ring_attention.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "device/comm.h"
#include "dist/launch/mesh_layout.h"
#include "nn/ring_layout.h"

namespace apus {

class Ring;         // nn/ring_attention.h
struct RowOrigins;  // nn/row_origins.h

// The heads that each of some ranks has: query heads next to each other, with the key-value heads that they look at.
// Where ranks outnumber those, several have the same; where they outnumber query heads, some have none.
struct HeadParts {
  HeadParts(int64_t heads, int64_t kv_heads, int ranks);
  std::vector<Range> q, kv;
};

// Shapes: T all tokens, g those of this rank's group, t this rank's; N, K query and key-value heads, n, k those that
// this rank attends with. Where there is one group it has all tokens, in their order.
class TokenShare {
 public:
  // `groups`: into so many the ranks are divided, neighbours together.
  TokenShare(Comm& ranks, const std::vector<int32_t>& lengths, int groups, at::Device device);

  Comm& ranks() const { return ranks_; }
  // Of the tokens as the groups have them, one group behind the other.
  Range own() const { return tokens_[static_cast<size_t>(ranks_.rank())]; }
  const std::vector<Range>& of_ranks() const { return tokens_; }
  // Where in their sequences each rank's tokens stand; rows are counted from its own first.
  const std::vector<TokenRun>& runs(int rank) const { return runs_[static_cast<size_t>(rank)]; }
  bool all_have_some() const;
  // Null: one group has all tokens.
  const std::shared_ptr<const Ring>& ring() const { return ring_; }

  struct Heads {
    at::Tensor q, k, v;
  };
  // [t, N, H], [t, K, H] -> [g, n, H], [g, k, H]
  Heads all_tokens(const Heads& own) const;
  // What attention gave, [g, n, H] -> [t, N, H].
  at::Tensor own_tokens(const at::Tensor& y_gnH, int64_t heads, int64_t kv_heads) const;
  // What each query head has, [N] -> [n].
  at::Tensor own_heads(const at::Tensor& x_N, int64_t kv_heads) const;

  // All tokens as the ranks have them, one rank behind the other, in their own order; and back.
  at::Tensor in_order(const at::Tensor& x_T) const;
  at::Tensor as_shared_out(const at::Tensor& x_T) const;

  at::Tensor gathered(const at::Tensor& x_tD) const;        // -> [T, D]
  at::Tensor narrowed(const at::Tensor& x_T) const;         // [T, ...] -> [t, ...]
  at::Tensor attended(const at::Tensor& x_T) const;         // [T, ...] -> [g, ...]
  at::Tensor own_of_attended(const at::Tensor& x_g) const;  // [g, ...] -> [t, ...]
  at::Tensor own_labels(const at::Tensor& label_T) const;   // the same, with -100 at the tokens of others
  at::Tensor summed(const at::Tensor& x) const;             // over the ranks
  // The sum over the ranks, all in one group, of what each made of all tokens, [T, ...] -> [t, ...]. `known`: the
  // result, as collective::reduce_scatter takes it.
  at::Tensor own_sum(const at::Tensor& x_T, const at::Tensor& known = {}) const;
  // Of some tokens that are this rank's, their places among its own; which of `row_R` these are, too. int64.
  struct Places {
    at::Tensor which, own;
  };
  Places places(const at::Tensor& row_R) const;
  // Where this rank's tokens stand among all, for masks of dropout; null: one behind the other, from own().begin on.
  std::shared_ptr<const RowOrigins> origins(uint64_t seed) const;

 private:
  int group_size() const { return ranks_.size() / groups_; }
  int group() const { return ranks_.rank() / group_size(); }
  int64_t group_begin() const;
  at::Tensor rows(const at::Tensor& x_T, const Range& places) const;

  Comm& ranks_;
  int groups_;
  std::vector<Range> tokens_;                // of each rank
  std::vector<std::vector<TokenRun>> runs_;  // of each rank
  // Where there is more than one group: which token stands at each place, and the place of each token.
  std::shared_ptr<const Ring> ring_;
  std::vector<int64_t> order_;
  at::Tensor order_T_, place_T_;
};

}  // namespace apus
