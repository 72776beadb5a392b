// SPDX-License-Identifier: Apache-2.0
#include "nn/token_share.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "dist/collective.h"
#include "nn/ring_attention.h"
#include "nn/row_origins.h"

namespace apus {

namespace {

// Those of a group's ranks, each of which must have some.
HeadParts attended_with(int64_t heads, int64_t kv_heads, int ranks) {
  HeadParts parts(heads, kv_heads, ranks);
  for (const Range& q : parts.q)
    require(q.size > 0, Fault::Usage, heads, " heads are too few for ", ranks, " ranks that share a sequence");
  return parts;
}
int64_t width(const HeadParts& parts, size_t rank) { return parts.q[rank].size + 2 * parts.kv[rank].size; }

// What of these runs lies in a part of their rows.
std::vector<TokenRun> within(const std::vector<TokenRun>& runs, const Range& part) {
  std::vector<TokenRun> out;
  for (const TokenRun& run : runs) {
    const int64_t first = std::max(run.row, part.begin),
                  size = std::min(run.row + run.size, part.begin + part.size) - first;
    if (size > 0) out.push_back({run.sequence, run.begin + first - run.row, size, first - part.begin});
  }
  return out;
}

at::Tensor heads_in(const at::Tensor& x_TNH, const Range& heads) { return x_TNH.narrow(1, heads.begin, heads.size); }

}  // namespace

HeadParts::HeadParts(int64_t heads, int64_t kv_heads, int ranks) {
  const Cut by_group{.axis = Axis::Cp, .dim = 1, .groups = kv_heads, .units = heads / kv_heads},
      shared{.axis = Axis::Cp, .dim = 1, .groups = kv_heads, .shared = true};
  for (int r = 0; r < ranks; ++r)
    q.push_back(part_of(heads, by_group, r, ranks)), kv.push_back(part_of(kv_heads, shared, r, ranks));
}

TokenShare::TokenShare(Comm& ranks, const std::vector<int32_t>& lengths, int groups, at::Device device)
    : ranks_(ranks), groups_(groups) {
  require(groups > 0 && ranks.size() % groups == 0, Fault::Bug, ranks.size(), " ranks in ", groups, " groups");
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const auto ring = groups == 1 ? nullptr : std::make_shared<const Ring>(ranks, group_size(), lengths);
  int64_t begin = 0;
  for (int g = 0; g < groups; ++g) {
    const int64_t own = ring ? ring->tokens_of(g) : tokens;
    for (int r = 0; r < group_size(); ++r) {
      const Range part = part_of(own, r, group_size());
      tokens_.push_back({begin + part.begin, part.size});
      runs_.push_back(within(zigzag(lengths, g, groups), part));
    }
    begin += own;
  }
  if (!ring) return;
  std::vector<int64_t> first{0}, place(static_cast<size_t>(tokens));  // of each sequence among all tokens
  for (const int32_t length : lengths) first.push_back(first.back() + length);
  for (int g = 0; g < groups; ++g)
    for (const TokenRun& run : ring->runs(g))
      for (int64_t i = run.begin; i < run.end(); ++i) {
        const int64_t token = first[static_cast<size_t>(run.sequence)] + i;
        place[static_cast<size_t>(token)] = std::ssize(order_), order_.push_back(token);
      }
  ring_ = ring;
  order_T_ = at::tensor(order_, at::kLong).to(device), place_T_ = at::tensor(place, at::kLong).to(device);
}

bool TokenShare::all_have_some() const {
  return std::all_of(tokens_.begin(), tokens_.end(), [](const Range& r) { return r.size > 0; });
}

// One message to each rank of the group: its heads of my tokens, queries, keys and values beside each other.
TokenShare::Heads TokenShare::all_tokens(const Heads& own) const {
  if (group_size() == 1) return own;
  const int64_t t = own.q.size(0), h = own.q.size(2);
  const HeadParts parts = attended_with(own.q.size(1), own.k.size(1), group_size());
  const int first = group() * group_size();
  const auto me = static_cast<size_t>(ranks_.rank() - first);
  std::vector<at::Tensor> pieces;
  collective::Rows send(tokens_.size()), receive(tokens_.size());
  for (size_t i = 0; i < parts.q.size(); ++i) {
    const size_t r = static_cast<size_t>(first) + i;
    pieces.push_back(
        at::cat({heads_in(own.q, parts.q[i]), heads_in(own.k, parts.kv[i]), heads_in(own.v, parts.kv[i])}, 1)
            .view({-1}));
    send[r] = t * width(parts, i) * h, receive[r] = tokens_[r].size * width(parts, me) * h;
  }
  const at::Tensor all = collective::all_to_all(at::cat(pieces), ranks_, send, receive).view({-1, width(parts, me), h});
  const int64_t n = parts.q[me].size, k = parts.kv[me].size;
  // Values are kept for their gradient as they come: apart, or they would keep all the others with them.
  return {all.narrow(1, 0, n), all.narrow(1, n, k), all.narrow(1, n + k, k).contiguous()};
}

at::Tensor TokenShare::own_tokens(const at::Tensor& y_gnH, int64_t heads, int64_t kv_heads) const {
  if (group_size() == 1) return y_gnH;
  const int64_t h = y_gnH.size(2);
  const HeadParts parts = attended_with(heads, kv_heads, group_size());
  const auto first = static_cast<size_t>(group() * group_size());
  collective::Rows send(tokens_.size()), receive(tokens_.size());
  for (size_t i = 0; i < parts.q.size(); ++i) {
    send[first + i] = tokens_[first + i].size * y_gnH.size(1) * h;
    receive[first + i] = own().size * parts.q[i].size * h;
  }
  const at::Tensor flat = collective::all_to_all(y_gnH.reshape({-1}), ranks_, send, receive);
  std::vector<at::Tensor> pieces;
  int64_t begin = 0;
  for (size_t i = 0; i < parts.q.size(); begin += receive[first + i++])
    pieces.push_back(flat.narrow(0, begin, receive[first + i]).view({own().size, parts.q[i].size, h}));
  return at::cat(pieces, 1);
}

at::Tensor TokenShare::own_heads(const at::Tensor& x_N, int64_t kv_heads) const {
  const HeadParts parts(x_N.size(0), kv_heads, group_size());
  const Range own = parts.q[static_cast<size_t>(ranks_.rank() % group_size())];
  return x_N.narrow(0, own.begin, own.size);
}

at::Tensor TokenShare::in_order(const at::Tensor& x_T) const {
  return ring_ ? at::index_select(x_T, 0, place_T_.to(x_T.device())) : x_T;
}

at::Tensor TokenShare::as_shared_out(const at::Tensor& x_T) const {
  return ring_ ? at::index_select(x_T, 0, order_T_.to(x_T.device())) : x_T;
}

namespace {
collective::Rows sizes(const std::vector<Range>& parts) {
  collective::Rows out;
  for (const Range& part : parts) out.push_back(part.size);
  return out;
}
}  // namespace

at::Tensor TokenShare::gathered(const at::Tensor& x_tD) const {
  return in_order(collective::all_gather(x_tD, ranks_, sizes(tokens_)));
}

at::Tensor TokenShare::own_sum(const at::Tensor& x_T, const at::Tensor& known) const {
  require(!ring_, Fault::Bug, "sums of tokens that lie in another order");
  return collective::reduce_scatter(x_T, ranks_, sizes(tokens_), known);
}

at::Tensor TokenShare::rows(const at::Tensor& x_T, const Range& places) const {
  if (!ring_) return x_T.narrow(0, places.begin, places.size);
  return at::index_select(x_T, 0, order_T_.narrow(0, places.begin, places.size).to(x_T.device()));
}

at::Tensor TokenShare::narrowed(const at::Tensor& x_T) const { return rows(x_T, own()); }

int64_t TokenShare::group_begin() const { return tokens_[static_cast<size_t>(group() * group_size())].begin; }

at::Tensor TokenShare::attended(const at::Tensor& x_T) const {
  if (!ring_ || !x_T.defined()) return x_T;
  return rows(x_T, {group_begin(), ring_->tokens_of(group())});
}

at::Tensor TokenShare::own_of_attended(const at::Tensor& x_g) const {
  return x_g.narrow(0, own().begin - group_begin(), own().size);
}

at::Tensor TokenShare::own_labels(const at::Tensor& label_T) const {
  const at::Tensor out = at::full_like(label_T, -100);
  if (!ring_) return narrowed(out).copy_(narrowed(label_T)), out;
  return out.index_copy_(0, order_T_.narrow(0, own().begin, own().size).to(out.device()), narrowed(label_T));
}

at::Tensor TokenShare::summed(const at::Tensor& x) const { return collective::all_reduce(x, ranks_); }

TokenShare::Places TokenShare::places(const at::Tensor& row_R) const {
  const at::Tensor place_R = (ring_ ? at::index_select(place_T_.to(row_R.device()), 0, row_R) : row_R) - own().begin;
  const at::Tensor which = at::nonzero(place_R.ge(0).logical_and(place_R.lt(own().size))).flatten();
  return {which, at::index_select(place_R, 0, which)};
}

std::shared_ptr<const RowOrigins> TokenShare::origins(uint64_t seed) const {
  if (!ring_) return nullptr;
  auto out = std::make_shared<RowOrigins>();
  int64_t before = -2;  // the token that was last
  for (int64_t i = own().begin; i < own().begin + own().size; before = order_[static_cast<size_t>(i++)])
    if (const int64_t token = order_[static_cast<size_t>(i)]; token == before + 1)
      ++out->parts.back().count[0];
    else
      out->parts.push_back({.seed = seed, .first = token, .count = {1}});
  return out;
}

}  // namespace apus
