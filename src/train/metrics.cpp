// SPDX-License-Identifier: Apache-2.0
#include "train/metrics.h"

#include <ATen/ops/tensor.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "device/agree.h"

namespace apus {
namespace {

// The names of all ranks: a channel may have been seen by one rank only, and all must reduce the same list.
std::set<std::string> union_of(const std::set<std::string>& names, Comm& ranks) {
  if (ranks.size() == 1) return names;
  std::string mine;
  for (const auto& name : names) mine += name + "\n";
  std::set<std::string> all;
  for (const std::string& text : gather_text(mine, ranks)) {
    std::istringstream lines(text);
    for (std::string name; std::getline(lines, name);) all.insert(name);
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

Json Metrics::sums(Comm& ranks) const {
  std::set<std::string> names;
  for (const auto& [name, ratio] : sums_) names.insert(name);
  for (const auto& [name, ratio] : earlier_) names.insert(name);
  Json out = Json::object();
  for (const std::string& name : union_of(names, ranks)) {
    double sum = 0, count = 0;
    if (const auto found = sums_.find(name); found != sums_.end())
      sum += found->second.sum.item<double>(), count += found->second.count.item<double>();
    if (const auto found = earlier_.find(name); found != earlier_.end())
      sum += found->second.first, count += found->second.second;
    at::Tensor both = at::tensor({sum, count}, at::kDouble);
    ranks.all_reduce(both)->wait();
    out[name] = {both[0].item<double>(), both[1].item<double>()};
  }
  return out;
}

void Metrics::restore(const Json& sums) {
  for (const auto& [name, both] : sums.items()) earlier_[name] = {both[0].get<double>(), both[1].get<double>()};
}

Json Metrics::take(Comm& ranks, const std::string& prefix) {
  Json out = Json::object();
  const Json all = sums(ranks);
  for (const auto& [name, both] : all.items())
    if (const double count = both[1].get<double>(); count > 0) out[prefix + name] = both[0].get<double>() / count;
  clear();
  return out;
}

}  // namespace apus
