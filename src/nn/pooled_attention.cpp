// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens of a step, t of a sequence in it, N heads, H numbers of a key, P pooled keys, D numbers of one of
// the index', W made of a token for them, U keys of tokens.
#include "nn/pooled_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "nn/rope.h"
#include "nn/seen_keys.h"
#include "ops/ops.h"

namespace apus {

GroupedLinear::GroupedLinear(int64_t groups, int64_t in, int64_t out)
    : groups_(groups), weight_(param("weight", {groups * out, in})) {}

at::Tensor GroupedLinear::operator()(const at::Tensor& x_TI) const {
  const at::Tensor& weight = weight_.data;
  return each_head(x_TI.view({x_TI.size(0), groups_, -1}), weight.view({groups_, -1, weight.size(1)})).flatten(1);
}

PooledAttention::PooledAttention(const Spec& s)
    : spec_(s),
      sinks_(param("sinks", {s.heads})),
      q_a_(child<Linear>("q_a_proj", Linear::Spec{.in = s.hidden, .out = s.form.query_rank})),
      q_norm_(child<Norm>("q_a_norm", s.form.query_rank, NormSpec{.eps = s.eps})),
      q_b_(child<Linear>("q_b_proj", Linear::Spec{.in = s.form.query_rank, .out = s.heads * s.dim})),
      kv_(child<Linear>("kv_proj", Linear::Spec{.in = s.hidden, .out = s.dim})),
      kv_norm_(child<Norm>("kv_norm", s.dim, NormSpec{.eps = s.eps})),
      o_a_(child<GroupedLinear>("o_a_proj", s.form.groups, s.heads * s.dim / s.form.groups, s.form.group_rank)),
      o_b_(child<Linear>("o_b_proj", Linear::Spec{.in = s.form.groups * s.form.group_rank, .out = s.hidden})) {
  if (s.pool.tokens == 0) return;
  pool_ = &child<KeyPool>("compressor", s.hidden, s.dim, s.pool, s.eps);
  if (s.pool.chosen) index_ = &child<KeyIndex>("compressor.indexer", s.hidden, s.form, s.pool, s.eps);
}

PooledAttention::Made PooledAttention::made(const at::Tensor& x_TD, const Step& s) const {
  const Turn& turn = s.turns[spec_.turn];
  const at::Tensor small_q_TC = q_norm_(q_a_(x_TD, s));
  const at::Tensor q_TNH = rms_alone(q_b_(small_q_TC, s).view({x_TD.size(0), spec_.heads, spec_.dim}), spec_.eps);
  Made made{
      end_turned(q_TNH, turn.cos, turn.sin), end_turned(kv_norm_(kv_(x_TD, s)).unsqueeze(1), turn.cos, turn.sin), {}};
  if (pool_) made.pooled_TW = pool_->made(x_TD, s);
  if (!index_) return made;
  made.index = index_->queries(x_TD, small_q_TC, turn, s);
  made.pooled_TW = at::cat({made.pooled_TW, index_->made(x_TD, s).detach()}, 1);
  return made;
}

// [pools, H + D]: a key and that of the index side by side.
at::Tensor PooledAttention::pooled_keys(const at::Tensor& made_RW, int64_t begin, int64_t first, int64_t end) const {
  const int64_t own = spec_.pool.made(spec_.dim);
  const at::Tensor place = at::arange(first, end, made_RW.options().dtype(at::kLong)) * spec_.pool.tokens;
  const Turn turn = turn_at(spec_.rope, place);
  const auto turned = [&](const at::Tensor& key) {
    return end_turned(key.unsqueeze(1), turn.cos, turn.sin).squeeze(1);
  };
  const at::Tensor key_PH = turned(pool_->keys(made_RW.narrow(1, 0, own), begin, first, end - first));
  if (!index_) return key_PH;
  const at::Tensor small_RW = made_RW.narrow(1, own, made_RW.size(1) - own).detach();
  const at::Tensor index_PD = turned(index_->keys(small_RW, begin, first, end - first));
  return at::cat({key_PH, index_PD.detach()}, 1);
}

void PooledAttention::split(const at::Tensor& key_PA, Seen& seen) const {
  seen.pooled_P1H = key_PA.narrow(1, 0, spec_.dim).unsqueeze(1);
  if (index_) seen.index_PD = key_PA.narrow(1, spec_.dim, spec_.form.index.dim);
}

PooledAttention::Seen PooledAttention::seen(const Made& made, const Place& at, const Step& s) const {
  if (s.cache) return seen_in_cache(made, at, s);
  Seen seen{0, made.k_T1H.narrow(0, at.row, at.length), {}, {}};
  const int64_t pools = pool_ ? at.length / spec_.pool.tokens : 0;
  if (pools == 0) return seen;
  const at::Tensor own = made.pooled_TW.narrow(0, at.row, at.length);
  const at::Tensor rows = at::cat({at::zeros({spec_.pool.kept(), own.size(1)}, own.options()), own}, 0);
  split(pooled_keys(rows, -spec_.pool.kept(), 0, pools), seen);
  return seen;
}

namespace {
// Where in a cache the tokens [first, end) of a sequence lie whose blocks are these.
at::Tensor slots_of(const at::Tensor& block_B, int64_t block_size, int64_t first, int64_t end) {
  const at::Tensor token = at::arange(first, end, block_B.options().dtype(at::kLong));
  const at::Tensor block = at::index_select(block_B, 0, token.div(block_size, "floor")).to(at::kLong);
  return block * block_size + token.remainder(block_size);
}
}  // namespace

// The keys of pools that end in this step, made with what is left of the tokens before, which then are others.
at::Tensor PooledAttention::pooled_now(const Made& made, const Place& at, const Step& s) const {
  const int64_t tokens = spec_.pool.tokens, kept = spec_.pool.kept(), width = made.pooled_TW.size(1);
  const at::Tensor seat = s.seat.narrow(0, at.sequence, 1);
  const at::Tensor own = made.pooled_TW.narrow(0, at.row, at.length);
  at::Tensor rows = own;
  if (kept > 0) {
    at::Tensor state = s.cache->before(spec_.layer).flatten(1).narrow(1, 0, kept * width);
    rows = at::cat({at::index_select(state, 0, seat).view({kept, width}).to(own.scalar_type()), own}, 0);
    state.index_copy_(0, seat, rows.narrow(0, at.length, kept).reshape({1, -1}).to(state.scalar_type()));
  }
  const int64_t done = at.first / tokens, all = (at.first + at.length) / tokens;
  return all > done ? pooled_keys(rows, at.first - kept, done, all) : at::Tensor();
}

PooledAttention::Seen PooledAttention::seen_in_cache(const Made& made, const Place& at, const Step& s) const {
  const at::Tensor cache = s.cache->k(spec_.layer), block = s.block_table[at.sequence];
  const at::Tensor rows = cache.flatten(0, 1).select(1, 0);  // a view
  const int64_t end = at.first + at.length, size = cache.size(1);
  Seen seen{std::max<int64_t>(0, at.first - spec_.window + 1), {}, {}, {}};
  const at::Tensor near = slots_of(block, size, seen.from, end);
  seen.k_U1H = at::index_select(rows.narrow(1, 0, spec_.dim), 0, near).unsqueeze(1);
  if (!pool_) return seen;
  const at::Tensor fresh_PA = pooled_now(made, at, s);
  const int64_t tokens = spec_.pool.tokens, all = end / tokens;
  if (all == 0) return seen;
  const int64_t each = spec_.form.beside_token(spec_.pool, spec_.dim);
  at::Tensor beside = rows.narrow(1, spec_.dim, each);
  if (fresh_PA.defined()) {
    const int64_t fresh = fresh_PA.size(0);
    const at::Tensor parts = at::constant_pad_nd(fresh_PA, {0, tokens * each - fresh_PA.size(1)});
    beside.index_copy_(0, slots_of(block, size, (all - fresh) * tokens, all * tokens),
                       parts.view({fresh * tokens, each}));
  }
  const at::Tensor parts = at::index_select(beside, 0, slots_of(block, size, 0, all * tokens));
  split(parts.view({all, tokens * each}), seen);
  return seen;
}

namespace {
// So many queries at a time that their scores of one head are no more than this; but some at least.
constexpr int64_t kScores = int64_t{1} << 20, kFewest = 16;
}  // namespace

at::Tensor PooledAttention::attended(const Made& made, const Seen& seen, const Place& at) const {
  const auto places = at::TensorOptions().dtype(at::kLong).device(made.q_TNH.device());
  const ops::AttentionRule rule{.scale = 1 / std::sqrt(static_cast<double>(spec_.dim)), .sinks_N = sinks_.data};
  const int64_t pools = seen.pooled_P1H.defined() ? seen.pooled_P1H.size(0) : 0;
  const int64_t most = std::max(kFewest, kScores / (pools + std::min(at.length, spec_.window) + 1));
  std::vector<at::Tensor> out;
  for (int64_t done = 0; done < at.length; done += most) {
    const int64_t count = std::min(most, at.length - done), first = at.first + done, end = first + count;
    const auto own = [&](const at::Tensor& x) { return x.narrow(0, at.row + done, count); };
    const int64_t from = std::max(seen.from, first - spec_.window + 1);
    const at::Tensor query_t1 = at::arange(first, end, places).unsqueeze(1), key_U = at::arange(from, end, places);
    at::Tensor keys = seen.k_U1H.narrow(0, from - seen.from, end - from),
               hidden_tU = (key_U > query_t1).logical_or(key_U <= query_t1 - spec_.window);
    if (const int64_t known = pool_ ? end / spec_.pool.tokens : 0; known > 0) {
      const at::Tensor pooled = seen.pooled_P1H.narrow(0, 0, known);
      at::Tensor later_tP = (at::arange(1, known + 1, places) * spec_.pool.tokens) > query_t1 + 1;
      if (index_ && known > spec_.form.index.chosen)
        later_tP = hidden_but_best(own(made.index.q_TnD), own(made.index.weight_Tn), seen.index_PD.narrow(0, 0, known),
                                   later_tP, spec_.form.index.chosen);
      keys = at::cat({keys, pooled}, 0), hidden_tU = at::cat({hidden_tU, later_tP}, 1);
    }
    out.push_back(over_seen(own(made.q_TNH), keys, keys, hidden_tU, rule));
  }
  return out.size() == 1 ? out[0] : at::cat(out, 0);
}

at::Tensor PooledAttention::operator()(const at::Tensor& x_TD, const Step& s) const {
  require_own_rows(s);
  const Made made = this->made(x_TD, s);
  if (s.cache) {
    at::Tensor cache = s.cache->k(spec_.layer);
    const at::Tensor entry = at::constant_pad_nd(made.k_T1H, {0, cache.size(3) - spec_.dim});
    ops::store_kv(entry, entry, cache, cache, s.slot);  // there is one cache
  }
  std::vector<at::Tensor> out;
  int64_t row = 0;
  for (size_t i = 0; i < s.length_q.size(); row += s.length_q[i++]) {
    const Place at{static_cast<int64_t>(i), row, s.length_q[i], s.begin_q.empty() ? 0 : s.begin_q[i]};
    out.push_back(attended(made, seen(made, at, s), at));
  }
  const Turn& turn = s.turns[spec_.turn];
  const at::Tensor y_TNH = end_turned(at::cat(out, 0), turn.cos, -turn.sin);
  return o_b_(o_a_(y_TNH.flatten(1)), s);
}

}  // namespace apus
