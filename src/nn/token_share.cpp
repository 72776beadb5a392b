// SPDX-License-Identifier: Apache-2.0
#include "nn/token_share.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>

#include "base/error.h"
#include "dist/collective.h"

namespace apus {

namespace {

// The heads that each rank attends with.
struct HeadParts {
  HeadParts(int64_t heads, int64_t kv_heads, int ranks) {
    const Cut by_group{.axis = Axis::Cp, .dim = 1, .groups = kv_heads, .units = heads / kv_heads},
        shared{.axis = Axis::Cp, .dim = 1, .groups = kv_heads, .shared = true};
    for (int r = 0; r < ranks; ++r) {
      q.push_back(part_of(heads, by_group, r, ranks)), kv.push_back(part_of(kv_heads, shared, r, ranks));
      require(q.back().size > 0, Fault::Usage, heads, " heads are too few for ", ranks, " ranks that share a sequence");
    }
  }
  int64_t width(size_t rank) const { return q[rank].size + 2 * kv[rank].size; }
  std::vector<Range> q, kv;
};

at::Tensor heads_in(const at::Tensor& x_TNH, const Range& heads) { return x_TNH.narrow(1, heads.begin, heads.size); }

}  // namespace

TokenShare::TokenShare(Comm& ranks, int64_t tokens) : ranks_(ranks) {
  for (int r = 0; r < ranks.size(); ++r) tokens_.push_back(part_of(tokens, r, ranks.size()));
}

// One message to each rank: its heads of my tokens, queries, keys and values beside each other.
TokenShare::Heads TokenShare::all_tokens(const Heads& own) const {
  const int64_t t = own.q.size(0), h = own.q.size(2);
  const HeadParts parts(own.q.size(1), own.k.size(1), ranks_.size());
  const auto me = static_cast<size_t>(ranks_.rank());
  std::vector<at::Tensor> pieces;
  collective::Rows send, receive;
  for (size_t r = 0; r < tokens_.size(); ++r) {
    pieces.push_back(
        at::cat({heads_in(own.q, parts.q[r]), heads_in(own.k, parts.kv[r]), heads_in(own.v, parts.kv[r])}, 1)
            .view({-1}));
    send.push_back(t * parts.width(r) * h), receive.push_back(tokens_[r].size * parts.width(me) * h);
  }
  const at::Tensor all = collective::all_to_all(at::cat(pieces), ranks_, send, receive).view({-1, parts.width(me), h});
  const int64_t n = parts.q[me].size, k = parts.kv[me].size;
  return {all.narrow(1, 0, n), all.narrow(1, n, k), all.narrow(1, n + k, k)};
}

at::Tensor TokenShare::own_tokens(const at::Tensor& y_TnH, int64_t heads, int64_t kv_heads) const {
  const int64_t h = y_TnH.size(2);
  const HeadParts parts(heads, kv_heads, ranks_.size());
  collective::Rows send, receive;
  for (size_t r = 0; r < tokens_.size(); ++r) {
    send.push_back(tokens_[r].size * y_TnH.size(1) * h);
    receive.push_back(own().size * parts.q[r].size * h);
  }
  const at::Tensor flat = collective::all_to_all(y_TnH.reshape({-1}), ranks_, send, receive);
  std::vector<at::Tensor> pieces;
  int64_t begin = 0;
  for (size_t r = 0; r < tokens_.size(); begin += receive[r++])
    pieces.push_back(flat.narrow(0, begin, receive[r]).view({own().size, parts.q[r].size, h}));
  return at::cat(pieces, 1);
}

at::Tensor TokenShare::gathered(const at::Tensor& x_tD) const {
  collective::Rows rows;
  for (const Range& r : tokens_) rows.push_back(r.size);
  return collective::all_gather(x_tD, ranks_, rows);
}

at::Tensor TokenShare::narrowed(const at::Tensor& x_T) const { return x_T.narrow(0, own().begin, own().size); }

at::Tensor TokenShare::own_labels(const at::Tensor& label_T) const {
  const at::Tensor out = at::full_like(label_T, -100);
  narrowed(out).copy_(narrowed(label_T));
  return out;
}

at::Tensor TokenShare::summed(const at::Tensor& x) const { return collective::all_reduce(x, ranks_); }

}  // namespace apus
