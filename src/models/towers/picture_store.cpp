// SPDX-License-Identifier: Apache-2.0
#include "models/towers/picture_store.h"

#include <algorithm>
#include <utility>

namespace apus {

std::shared_ptr<PictureKeys> PictureStore::find(const std::string& key) {
  const auto found = place_.find(key);
  if (found == place_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->keys;
}

void PictureStore::put(const std::string& key, std::shared_ptr<PictureKeys> keys, int64_t needed) {
  entries_.push_front({key, std::move(keys)});
  place_[key] = entries_.begin();
  for (; std::ssize(entries_) > std::max(most_, needed); entries_.pop_back()) place_.erase(entries_.back().key);
}

}  // namespace apus
