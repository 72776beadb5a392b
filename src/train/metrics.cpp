// SPDX-License-Identifier: Apache-2.0
#include "train/metrics.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

namespace apus {
namespace {

// The names of all ranks: a channel may have been seen by one rank only, and all must reduce the same list.
std::set<std::string> union_of(const std::set<std::string>& names, Comm& ranks) {
  if (ranks.size() == 1) return names;
  std::string mine;
  for (const auto& name : names) mine += name + "\n";
  at::Tensor longest = at::tensor({static_cast<int64_t>(mine.size())}, at::kLong);
  ranks.all_reduce(longest, Reduce::Max)->wait();
  const int64_t width = longest.item<int64_t>();
  at::Tensor in = at::zeros({width}, at::kByte), out = at::zeros({width * ranks.size()}, at::kByte);
  std::memcpy(in.data_ptr(), mine.data(), mine.size());
  ranks.all_gather(out, in)->wait();
  std::set<std::string> all;
  std::string name;
  for (int64_t i = 0; i < out.numel(); ++i) {
    const char c = static_cast<char>(out.data_ptr<uint8_t>()[i]);
    if (c != '\n' && c != 0) name += c;
    if (c == '\n') all.insert(name), name.clear();
  }
  return all;
}

}  // namespace

void Metrics::add(const std::map<std::string, Ratio>& ratios) {
  for (const auto& [name, ratio] : ratios) {
    const auto wide = ratio.sum.is_cpu() ? at::kDouble : at::kFloat;  // not every device has doubles
    const at::Tensor sum = ratio.sum.to(wide), count = ratio.count.to(wide);
    Ratio& total = sums_[name];
    total = total.sum.defined() ? Ratio{total.sum.add(sum), total.count.add(count)} : Ratio{sum, count};
  }
}

Json Metrics::take(Comm& ranks, const std::string& prefix) {
  std::set<std::string> names;
  for (const auto& [name, ratio] : sums_) names.insert(name);
  Json out = Json::object();
  for (const std::string& name : union_of(names, ranks)) {
    const auto found = sums_.find(name);
    const bool here = found != sums_.end();
    at::Tensor both = at::tensor(
        {here ? found->second.sum.item<double>() : 0.0, here ? found->second.count.item<double>() : 0.0}, at::kDouble);
    ranks.all_reduce(both)->wait();
    const double count = both[1].item<double>();
    if (count > 0) out[prefix + name] = both[0].item<double>() / count;
  }
  sums_.clear();
  return out;
}

}  // namespace apus
