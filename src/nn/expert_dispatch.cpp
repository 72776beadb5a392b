// SPDX-License-Identifier: Apache-2.0
#include "nn/expert_dispatch.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "dist/collective.h"
#include "dist/launch/mesh_layout.h"

namespace apus {
namespace {

// What each rank says of the rows that it has for the experts of this one: how many for each, where they begin among
// its own, and the seed of its masks.
std::vector<RowOrigins::Part> rows_of_all(const std::vector<int64_t>& count, uint64_t seed, Comm& host) {
  constexpr int64_t kMore = 2;
  const int ranks = host.size();
  const auto experts = static_cast<int64_t>(count.size()), own = part_of(experts, host.rank(), ranks).size;
  std::vector<at::Tensor> out, in;
  int64_t first = 0;
  for (int r = 0; r < ranks; ++r) {
    const Range theirs = part_of(experts, r, ranks);
    const at::Tensor said = at::empty({theirs.size + kMore}, at::kLong);
    auto* const numbers = said.data_ptr<int64_t>();
    std::copy_n(count.begin() + theirs.begin, theirs.size, numbers);
    numbers[theirs.size] = first, numbers[theirs.size + 1] = std::bit_cast<int64_t>(seed);
    first = std::accumulate(numbers, numbers + theirs.size, first);
    in.push_back(said), out.push_back(at::empty({own + kMore}, at::kLong));
  }
  host.all_to_all(out, in)->wait();
  std::vector<RowOrigins::Part> parts;
  for (const at::Tensor& t : out) {
    const auto* const numbers = t.data_ptr<int64_t>();
    parts.push_back(
        {.seed = std::bit_cast<uint64_t>(numbers[own + 1]), .first = numbers[own], .count = {numbers, numbers + own}});
  }
  return parts;
}

int64_t sum(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

}  // namespace

ExpertDispatch::ExpertDispatch(const ops::ExpertPairs& pairs, uint64_t seed, Comm& host, Comm& device)
    : ranks_(device) {
  origins_.parts = rows_of_all(pairs.count(), seed, host);
  const auto& parts = origins_.parts;
  const auto experts = static_cast<int64_t>(pairs.count().size());
  std::vector<int64_t> next;  // row that came from each rank
  for (int r = 0; r < host.size(); ++r) {
    const Range theirs = part_of(experts, r, host.size());
    const auto first = pairs.count().begin() + theirs.begin;
    send_.push_back(std::accumulate(first, first + theirs.size, int64_t{0}));
    next.push_back(sum(receive_)), receive_.push_back(parts[static_cast<size_t>(r)].rows());
  }
  const int64_t rows = sum(receive_), own = part_of(experts, host.rank(), host.size()).size;
  // One way to the device: the order, its inverse, and where each expert's rows end.
  at::Tensor numbers = at::empty({2 * rows + own}, at::kLong);
  int64_t *order = numbers.data_ptr<int64_t>(), *place = order + rows, *end = place + rows, at = 0;
  std::vector<int64_t> count;
  for (size_t e = 0; e < static_cast<size_t>(own); ++e) {
    const int64_t begin = at;
    for (size_t r = 0; r < parts.size(); ++r)
      for (int64_t i = 0; i < parts[r].count[e]; ++i) place[next[r]] = at, order[at++] = next[r]++;
    count.push_back(at - begin), end[e] = at;
  }
  numbers = numbers.to(pairs.token.device());
  order_m_ = numbers.narrow(0, 0, rows), place_m_ = numbers.narrow(0, rows, rows);
  origins_.order_m = order_m_;
  const at::Tensor each = at::arange(rows, pairs.token.options());
  own_ = {each, each, numbers.narrow(0, 2 * rows, own), std::move(count)};
}

at::Tensor ExpertDispatch::there(const at::Tensor& x_MD) const {
  return at::index_select(collective::all_to_all(x_MD, ranks_, send_, receive_), 0, order_m_);
}

at::Tensor ExpertDispatch::back(const at::Tensor& y_mD) const {
  return collective::all_to_all(at::index_select(y_mD, 0, place_m_), ranks_, receive_, send_);
}

}  // namespace apus
