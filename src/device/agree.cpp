// SPDX-License-Identifier: Apache-2.0
#include "device/agree.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cstring>

namespace apus {

namespace {
double reduced(Comm& ranks, double value, Reduce op) {
  if (ranks.size() == 1) return value;
  const at::Tensor t = at::tensor({value}, at::kDouble);
  ranks.all_reduce(t, op)->wait();
  return t.item<double>();
}
}  // namespace

double sum_over(Comm& ranks, double value) { return reduced(ranks, value, Reduce::Sum); }
double largest_of(Comm& ranks, double value) { return reduced(ranks, value, Reduce::Max); }

std::vector<std::string> gather_text(const std::string& mine, Comm& ranks) {
  if (ranks.size() == 1) return {mine};
  const at::Tensor length = at::tensor({static_cast<int64_t>(mine.size())}, at::kLong),
                   lengths = at::empty({ranks.size()}, at::kLong);
  ranks.all_gather(lengths, length)->wait();
  at::Tensor bytes = at::empty({static_cast<int64_t>(mine.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), mine.data(), mine.size());
  std::vector<at::Tensor> all;
  for (int r = 0; r < ranks.size(); ++r) all.push_back(at::empty({lengths.data_ptr<int64_t>()[r]}, at::kByte));
  ranks.all_gather_uneven(all, bytes)->wait();
  std::vector<std::string> out;
  for (const at::Tensor& t : all)
    out.emplace_back(static_cast<const char*>(t.data_ptr()), static_cast<size_t>(t.numel()));
  return out;
}

}  // namespace apus
