// SPDX-License-Identifier: Apache-2.0
#include "media/media_cache.h"

#include <utility>

namespace apus {

namespace {
int64_t bytes_of(const PreparedMedia& media) {
  size_t bytes = 0;
  for (const auto* content : {media.content.get(), media.sound.get()})
    if (content) bytes += content->values.size() * sizeof(float);
  for (const auto& run : media.runs) bytes += run.size() * sizeof(int32_t);
  return static_cast<int64_t>(bytes);
}
}  // namespace

MadeMedium MediaCache::get(const std::string& key, const std::function<MadeMedium()>& make) {
  {
    const std::lock_guard hold(lock_);
    if (const auto known = place_.find(key); known != place_.end()) {
      ++counts_.found;
      entries_.splice(entries_.begin(), entries_, known->second);
      return known->second->made;
    }
  }
  MadeMedium made = make();
  const int64_t bytes = bytes_of(made.media);
  const std::lock_guard hold(lock_);
  ++counts_.made;
  if (bytes > most_bytes_ || place_.count(key)) return made;
  entries_.push_front({key, made, bytes});
  place_[key] = entries_.begin();
  for (counts_.bytes += bytes; counts_.bytes > most_bytes_; entries_.pop_back()) {
    counts_.bytes -= entries_.back().bytes;
    place_.erase(entries_.back().key);
  }
  return made;
}

MediaCache::Counts MediaCache::counts() const {
  const std::lock_guard hold(lock_);
  Counts counts = counts_;
  counts.most_bytes = most_bytes_;
  return counts;
}

}  // namespace apus
