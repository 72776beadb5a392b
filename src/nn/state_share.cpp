// SPDX-License-Identifier: Apache-2.0
#include "nn/state_share.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "dist/collective.h"

namespace apus {

ScanShare::ScanShare(const TokenShare& tokens, const ops::StateInputs& own)
    : tokens_(tokens), parts_(own.v_TNV.size(1), own.q_TGK.size(1), tokens.ranks().size()) {}

namespace {
// All that is of these heads, of each token one number behind the other.
at::Tensor row_of(const ops::StateInputs& in, const Range& heads, const Range& key_heads) {
  std::vector<at::Tensor> parts;
  const auto add = [&](const at::Tensor& x, const Range& part) {
    if (x.defined()) parts.push_back(x.narrow(1, part.begin, part.size).flatten(1));
  };
  add(in.q_TGK, key_heads), add(in.k_TGK, key_heads);
  add(in.v_TNV, heads), add(in.decay_TN, heads), add(in.share_TN, heads);
  return at::cat(parts, 1);
}
// And back, of as many heads; `like` has the sizes of each.
ops::StateInputs inputs_of(const at::Tensor& row_TW, const ops::StateInputs& like, int64_t heads, int64_t key_heads) {
  int64_t begin = 0;
  const auto take = [&](const at::Tensor& of, int64_t count) {
    if (!of.defined()) return of;
    std::vector<int64_t> shape = of.sizes().vec();
    shape[0] = row_TW.size(0), shape[1] = count;
    const int64_t width = count * (of.dim() > 2 ? of.size(2) : 1);
    return row_TW.narrow(1, std::exchange(begin, begin + width), width).reshape(shape);
  };
  ops::StateInputs out;
  out.q_TGK = take(like.q_TGK, key_heads), out.k_TGK = take(like.k_TGK, key_heads);
  out.v_TNV = take(like.v_TNV, heads), out.decay_TN = take(like.decay_TN, heads);
  out.share_TN = take(like.share_TN, heads);
  return out;
}
}  // namespace

ops::StateInputs ScanShare::all_tokens(const ops::StateInputs& own) const {
  const std::vector<Range>& tokens = tokens_.of_ranks();
  const auto me = static_cast<size_t>(tokens_.ranks().rank());
  std::vector<at::Tensor> pieces;
  collective::Rows send, receive;
  for (size_t r = 0; r < tokens.size(); ++r) {
    const at::Tensor row = row_of(own, parts_.q[r], parts_.kv[r]);
    send.push_back(row.numel()), pieces.push_back(row.flatten());
    receive.push_back(row.size(1));
  }
  const int64_t width = receive[me];
  for (size_t r = 0; r < tokens.size(); ++r) receive[r] = tokens[r].size * width;
  const at::Tensor all = collective::all_to_all(at::cat(pieces), tokens_.ranks(), send, receive).view({-1, width});
  return inputs_of(tokens_.in_order(all), own, heads().size, parts_.kv[me].size);
}

at::Tensor ScanShare::own_heads(const at::Tensor& x_N) const {
  return x_N.defined() ? x_N.narrow(0, heads().begin, heads().size) : x_N;
}

at::Tensor ScanShare::own_tokens(const at::Tensor& y_TnV) const {
  const std::vector<Range>& tokens = tokens_.of_ranks();
  const int64_t size = y_TnV.size(2), own = tokens_.own().size;
  collective::Rows send, receive;
  for (size_t r = 0; r < tokens.size(); ++r) {
    send.push_back(tokens[r].size * y_TnV.size(1) * size);
    receive.push_back(own * parts_.q[r].size * size);
  }
  const at::Tensor flat =
      collective::all_to_all(tokens_.as_shared_out(y_TnV).flatten(), tokens_.ranks(), send, receive);
  std::vector<at::Tensor> pieces;
  int64_t begin = 0;
  for (size_t r = 0; r < tokens.size(); begin += receive[r++])
    pieces.push_back(flat.narrow(0, begin, receive[r]).view({own, parts_.q[r].size, size}));
  return at::cat(pieces, 1);
}

namespace {

// A run and whose it is.
struct OwnedRun {
  TokenRun run;
  size_t rank;
};
using OwnedRuns = std::vector<OwnedRun>;  // of one sequence, from its begin on

std::vector<OwnedRuns> by_sequence(const TokenShare& tokens) {
  std::vector<OwnedRuns> out;
  for (int r = 0; r < tokens.ranks().size(); ++r)
    for (const TokenRun& run : tokens.runs(r)) {
      const auto sequence = static_cast<size_t>(run.sequence);
      if (out.size() <= sequence) out.resize(sequence + 1);
      out[sequence].push_back({run, static_cast<size_t>(r)});
    }
  for (OwnedRuns& all : out)
    std::sort(all.begin(), all.end(), [](const OwnedRun& a, const OwnedRun& b) { return a.run.begin < b.run.begin; });
  return out;
}

// What of the `count` tokens before a run others have, from the first on.
OwnedRuns before(const TokenRun& run, int64_t count, const OwnedRuns& sequence) {
  OwnedRuns out;
  for (const OwnedRun& other : sequence) {
    const int64_t first = std::max(other.run.begin, run.begin - count),
                  size = std::min(other.run.end(), run.begin) - first;
    if (size > 0) out.push_back({{run.sequence, first, size, other.run.row + first - other.run.begin}, other.rank});
  }
  return out;
}

// The runs of a rank, each with the tokens before it. Rows are of its own tokens, and behind these of what it receives
// from others.
struct WithThoseBefore {
  WithThoseBefore(const TokenShare& tokens, int64_t count) : send(tokens.of_ranks().size()), receive(send) {
    const std::vector<OwnedRuns> sequences = by_sequence(tokens);
    const auto me = static_cast<size_t>(tokens.ranks().rank());
    const auto told = [&](size_t rank, const auto& each) {
      for (const TokenRun& run : tokens.runs(static_cast<int>(rank)))
        each(run, before(run, count, sequences[static_cast<size_t>(run.sequence)]));
    };
    for (size_t r = 0; r < send.size(); ++r)
      told(r, [&](const TokenRun&, const OwnedRuns& runs) {
        for (const auto& [run, rank] : runs) {
          if (rank == me) add(sent, run.row, run.size), send[r] += run.size;
          if (r == me) receive[rank] += run.size;
        }
      });
    std::vector<int64_t> next;  // of what each rank sends, the first row that has no place yet
    int64_t end = tokens.own().size;
    for (const int64_t rows : receive) next.push_back(std::exchange(end, end + rows));
    told(me, [&](const TokenRun& own, const OwnedRuns& runs) {
      const int64_t begin = std::ssize(rows);
      for (const auto& [run, rank] : runs) add(rows, std::exchange(next[rank], next[rank] + run.size), run.size);
      add(kept, std::ssize(rows), own.size), add(rows, own.row, own.size);
      lengths.push_back(std::ssize(rows) - begin);
    });
  }
  static void add(std::vector<int64_t>& list, int64_t begin, int64_t size) {
    for (int64_t i = begin; i < begin + size; ++i) list.push_back(i);
  }
  std::vector<int64_t> sent = {};  // rows
  collective::Rows send, receive;
  std::vector<int64_t> rows = {}, lengths = {};
  std::vector<int64_t> kept = {};  // among `rows`, those of this rank's tokens
};

at::Tensor picked_rows(const at::Tensor& x, const std::vector<int64_t>& rows) {
  return at::index_select(x, 0, at::tensor(rows, at::kLong).to(x.device()));
}

}  // namespace

at::Tensor convolved_with_those_before(const TokenShare& tokens, const at::Tensor& x_tC, const at::Tensor& weight_CJ,
                                       const at::Tensor& bias_C) {
  const WithThoseBefore runs(tokens, weight_CJ.size(1) - 1);
  const at::Tensor received =
      collective::all_to_all(picked_rows(x_tC, runs.sent), tokens.ranks(), runs.send, runs.receive);
  const at::Tensor x_UC = picked_rows(at::cat({x_tC, received}), runs.rows);
  return picked_rows(ops::causal_conv(x_UC, weight_CJ, bias_C, runs.lengths), runs.kept);
}

}  // namespace apus
