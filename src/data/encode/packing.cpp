// SPDX-License-Identifier: Apache-2.0
#include "data/encode/packing.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"

namespace apus {

namespace {

std::vector<Bin> best_fit(const std::vector<int64_t>& lengths, int64_t capacity) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::vector<Bin> bins;
  std::set<std::pair<int64_t, size_t>> room;  // tokens that still fit, bin
  for (const size_t i : order) {
    const auto fit = room.lower_bound({lengths[i], 0});
    if (fit == room.end()) {
      bins.push_back({i});
      if (lengths[i] < capacity) room.insert({capacity - lengths[i], bins.size() - 1});
      continue;
    }
    const auto [left, bin] = *fit;
    room.erase(fit);
    bins[bin].push_back(i);
    if (left > lengths[i]) room.insert({left - lengths[i], bin});
  }
  for (Bin& bin : bins) std::sort(bin.begin(), bin.end());
  std::sort(bins.begin(), bins.end());
  return bins;
}

std::vector<Bin> sequential(const std::vector<int64_t>& lengths, int64_t capacity) {
  std::vector<Bin> bins;
  int64_t left = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (bins.empty() || lengths[i] > left) {
      bins.emplace_back();
      left = capacity;
    }
    bins.back().push_back(i);
    left -= lengths[i];
  }
  return bins;
}

}  // namespace

PackingStrategy packing_named(const std::string& name) {
  if (name == "binpack") return PackingStrategy::BestFit;
  require(name == "sequential", Fault::Usage, "--packing_strategy ", name, ": binpack and sequential are known");
  return PackingStrategy::Sequential;
}

std::vector<Bin> pack(const std::vector<int64_t>& lengths, int64_t capacity, PackingStrategy strategy) {
  require(capacity > 0, Fault::Usage, "--packing_length must be positive");
  return strategy == PackingStrategy::BestFit ? best_fit(lengths, capacity) : sequential(lengths, capacity);
}

size_t emptiest(const std::vector<Bin>& bins, const std::vector<int64_t>& lengths) {
  size_t which = 0;
  int64_t fewest = INT64_MAX;
  for (size_t i = 0; i < bins.size(); ++i) {
    int64_t tokens = 0;
    for (const size_t s : bins[i]) tokens += lengths[s];
    if (tokens < fewest) fewest = tokens, which = i;
  }
  return which;
}

std::vector<Bin> pack_in_groups(const std::vector<int64_t>& lengths, int64_t capacity, PackingStrategy strategy,
                                size_t group) {
  std::vector<Bin> out;
  std::vector<size_t> members;  // of the group at hand
  for (size_t next = 0; next < lengths.size();) {
    const size_t end = std::min(next + group, lengths.size());
    for (; next < end; ++next) members.push_back(next);
    std::vector<int64_t> own;
    for (const size_t m : members) own.push_back(lengths[m]);
    std::vector<Bin> bins = pack(own, capacity, strategy);
    Bin carried;
    if (next < lengths.size()) {  // of sequential bins only the last one is open
      const size_t open = strategy == PackingStrategy::Sequential ? bins.size() - 1 : emptiest(bins, own);
      carried = std::move(bins[open]);
      bins.erase(bins.begin() + static_cast<long>(open));
    }
    for (Bin& bin : bins) {
      for (size_t& i : bin) i = members[i];
      out.push_back(std::move(bin));
    }
    for (size_t& i : carried) i = members[i];
    members = std::move(carried);
  }
  return out;
}

}  // namespace apus
