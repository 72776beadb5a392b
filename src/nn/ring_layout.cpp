// SPDX-License-Identifier: Apache-2.0
#include "nn/ring_layout.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"

namespace apus {

std::vector<TokenRun> zigzag(const std::vector<int32_t>& lengths, int rank, int ranks) {
  std::vector<TokenRun> runs;
  int64_t row = 0;
  for (size_t s = 0; s < lengths.size(); ++s)
    for (const int piece : {rank, 2 * ranks - 1 - rank}) {
      const Range part = part_of(lengths[s], piece, 2 * ranks);
      if (part.size == 0) continue;
      runs.push_back({static_cast<int64_t>(s), part.begin, part.size, row});
      row += part.size;
    }
  return runs;
}

int64_t tokens_of(const std::vector<TokenRun>& runs) { return runs.empty() ? 0 : runs.back().row + runs.back().size; }

namespace {

bool meet(const Range& a, const Range& b) { return a.begin < b.begin + b.size && b.begin < a.begin + a.size; }

// Calls by their mask. Several have the same where a query would be in one of them twice.
class Calls {
 public:
  void add(int64_t sequence, const ops::Mask& mask, const Range& q, const Range& k) {
    for (int n = 0;; ++n) {
      Call& c = by_mask_[{mask.causal, mask.window, n}];
      c.call.mask = mask;
      if (sequence != c.sequence) c.sequence = sequence, c.first = c.call.q.size();
      if (grows(c, q, k)) return;
      if (std::any_of(c.call.q.begin() + c.first, c.call.q.end(), [&](const Range& r) { return meet(r, q); })) continue;
      c.call.q.push_back(q), c.call.k.push_back(k);
      return;
    }
  }
  std::vector<RingCall> all() const {
    std::vector<RingCall> out;
    for (const auto& [mask, c] : by_mask_) out.push_back(c.call);
    return out;
  }

 private:
  struct Call {
    RingCall call = {};
    int64_t sequence = -1;
    int64_t first = 0;  // the place of its first pair
  };
  // Two pieces that see the same, or are seen by the same, are one pair.
  static bool grows(Call& c, const Range& q, const Range& k) {
    if (c.call.mask.causal || c.call.mask.window != 0 || c.first == std::ssize(c.call.q)) return false;
    Range &last_q = c.call.q.back(), &last_k = c.call.k.back();
    if (k == last_k && q.begin == last_q.begin + last_q.size) return last_q.size += q.size, true;
    if (q == last_q && k.begin == last_k.begin + last_k.size) return last_k.size += k.size, true;
    return false;
  }
  std::map<std::tuple<bool, int64_t, int>, Call> by_mask_;
};

// Of queries behind all of these keys: what those that see some of them see. The operator counts positions from the
// last query and key backwards, where here the query is `away` behind the key: a window is so much narrower.
void add_before(const TokenRun& q, const TokenRun& k, int64_t window, Calls& calls) {
  Range queries = q.rows(), keys = k.rows();
  int64_t left = 0;
  if (window > 0) {
    const int64_t out_of_sight = std::max<int64_t>(0, q.begin - window + 1 - k.begin);  // keys, of the first query
    if (out_of_sight >= k.size) return;
    const int64_t seeing = std::min(q.end(), k.end() + window - 1) - q.begin;
    const int64_t away = q.begin + seeing - k.end();
    keys = {k.row + out_of_sight, k.size - out_of_sight}, queries.size = seeing;
    if (q.begin + seeing - 1 - (k.begin + out_of_sight) >= window) left = window - away;
  }
  calls.add(q.sequence, {.causal = false, .window = left}, queries, keys);
}

// Each run of queries with each run of keys of the same sequence that does not begin behind it, until one says stop.
template <class F>
void each_pair(const std::vector<TokenRun>& queries, const std::vector<TokenRun>& keys, const F& go_on) {
  size_t first = 0;
  for (const TokenRun& q : queries) {
    while (first < keys.size() && keys[first].sequence < q.sequence) ++first;
    for (size_t i = first; i < keys.size() && keys[i].sequence == q.sequence; ++i)
      if (keys[i].begin <= q.begin && !go_on(q, keys[i])) return;
  }
}

}  // namespace

bool look_at(const std::vector<TokenRun>& queries, const std::vector<TokenRun>& keys, const ops::Mask& mask) {
  bool seen = false;
  each_pair(queries, keys, [&](const TokenRun& q, const TokenRun& k) {
    seen = mask.window == 0 || q.begin - (k.end() - 1) < mask.window;
    return !seen;
  });
  return seen;
}

std::vector<RingCall> ring_calls(const std::vector<TokenRun>& queries, const std::vector<TokenRun>& keys,
                                 const ops::Mask& mask) {
  require(mask.causal && mask.window >= 0, Fault::Bug, "keys go round for attention that looks back");
  Calls calls;
  each_pair(queries, keys, [&](const TokenRun& q, const TokenRun& k) {
    if (k.begin == q.begin)
      calls.add(q.sequence, mask, q.rows(), k.rows());
    else
      add_before(q, k, mask.window, calls);
    return true;
  });
  return calls.all();
}

}  // namespace apus
