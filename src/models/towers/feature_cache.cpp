// SPDX-License-Identifier: Apache-2.0
#include "models/towers/feature_cache.h"

namespace apus {

namespace {
constexpr int64_t kMostBytes = int64_t{256} << 20;
}

const Sight* FeatureCache::find(const std::string& key) {
  const auto found = place_.find(key);
  if (found == place_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &found->second->sight;
}

void FeatureCache::put(const std::string& key, Sight sight) {
  if (place_.count(key)) return;
  auto bytes = static_cast<int64_t>(sight.row_MD.nbytes());
  for (const at::Tensor& late : sight.late_MD) bytes += static_cast<int64_t>(late.nbytes());
  entries_.push_front({key, std::move(sight), bytes});
  place_[key] = entries_.begin();
  bytes_ += bytes;
  while (bytes_ > kMostBytes && entries_.size() > 1) {
    bytes_ -= entries_.back().bytes;
    place_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace apus
