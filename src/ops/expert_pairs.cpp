// SPDX-License-Identifier: Apache-2.0
#include "ops/expert_pairs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tensor/upload.h"

namespace apus::ops {

ExpertPairs::ExpertPairs(at::Tensor token, at::Tensor pair, at::Tensor ends)
    : ExpertPairs(std::move(token), std::move(pair), std::move(ends), {}) {}
ExpertPairs::ExpertPairs(at::Tensor token, at::Tensor pair, at::Tensor ends, std::vector<int64_t> count)
    : token(std::move(token)),
      pair(std::move(pair)),
      ends(std::move(ends)),
      count_(std::make_shared<std::vector<int64_t>>(std::move(count))) {}

const std::vector<int64_t>& ExpertPairs::count() const {
  if (!count_->empty()) return *count_;
  const at::Tensor host = ends.to(at::kCPU, at::kLong).contiguous();
  const int64_t* const end = host.data_ptr<int64_t>();
  for (int64_t e = 0; e < host.numel(); ++e) count_->push_back(end[e] - (e > 0 ? end[e - 1] : 0));
  return *count_;
}

at::Tensor ExpertPairs::expert() const {
  if (!count_->empty()) return uploaded(at::repeat_interleave(at::tensor(*count_, at::kLong)), token.device());
  return expert_of_rows(token.size(0), ends);
}

at::Tensor ends_of_runs(const at::Tensor& expert_Tk, int64_t experts) {
  return expert_Tk.reshape({-1, 1}).eq(at::arange(experts, expert_Tk.options().dtype(at::kLong))).sum(0).cumsum(0);
}

at::Tensor expert_of_rows(int64_t rows, const at::Tensor& ends_E) {
  return at::arange(rows, ends_E.options()).unsqueeze(1).ge(ends_E).sum(1);
}

namespace {

ExpertPairs sorted_there(const at::Tensor& expert_Tk, int64_t experts) {
  const at::Tensor flat = expert_Tk.reshape({-1}).to(at::kLong);
  const at::Tensor pair = std::get<1>(at::sort(flat, /*stable=*/true, /*dim=*/0, /*descending=*/false));
  return {pair.floor_divide(expert_Tk.size(1)), pair, ends_of_runs(flat, experts)};
}

ExpertPairs sorted_here(const at::Tensor& expert_Tk, int64_t experts) {
  const at::Tensor host = expert_Tk.to(at::kLong).contiguous();
  const int64_t *of = host.data_ptr<int64_t>(), pairs = host.numel(), k = expert_Tk.size(1);
  std::vector<int64_t> count(static_cast<size_t>(experts), 0), next(count);
  for (int64_t i = 0; i < pairs; ++i) {
    require(of[i] >= 0 && of[i] < experts, Fault::Bug, "moe_ffn: expert ", of[i], " of ", experts);
    ++count[static_cast<size_t>(of[i])];
  }
  for (size_t e = 1; e < count.size(); ++e) next[e] = next[e - 1] + count[e - 1];
  at::Tensor order = at::empty({2 * pairs + experts}, host.options());  // tokens, pairs, ends
  int64_t *token = order.data_ptr<int64_t>(), *pair = token + pairs, *end = pair + pairs;
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t place = next[static_cast<size_t>(of[i])]++;
    token[place] = i / k;
    pair[place] = i;
  }
  std::copy(next.begin(), next.end(), end);
  return {order.narrow(0, 0, pairs), order.narrow(0, pairs, pairs), order.narrow(0, 2 * pairs, experts),
          std::move(count)};
}

}  // namespace

ExpertPairs pairs_by_expert(const at::Tensor& expert_Tk, int64_t experts) {
  return expert_Tk.device().is_cpu() ? sorted_here(expert_Tk, experts) : sorted_there(expert_Tk, experts);
}

ExpertPairs pairs_at(const ExpertPairs& pairs, const at::Tensor& place) {
  const at::Tensor host = place.to(at::kCPU).contiguous();
  const int64_t *at = host.data_ptr<int64_t>(), *const last = at + host.numel();
  at::Tensor ends = at::empty({static_cast<int64_t>(pairs.count().size())}, host.options());
  std::vector<int64_t> count;
  int64_t begin = 0, taken = 0, *end = ends.data_ptr<int64_t>();
  for (const int64_t n : pairs.count()) {
    const int64_t before = taken;
    for (; at < last && *at < begin + n; ++at) ++taken;
    count.push_back(taken - before), *end++ = taken, begin += n;
  }
  return {pairs.token.index_select(0, place), pairs.pair.index_select(0, place), uploaded(ends, place.device()),
          std::move(count)};
}

}  // namespace apus::ops
