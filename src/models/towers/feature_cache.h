// SPDX-License-Identifier: Apache-2.0
// What a tower made of media lately, by their digests: a prompt that is read in pieces needs it several times.
#pragma once

#include <list>
#include <string>
#include <unordered_map>

#include "models/towers/vision_tower.h"

namespace apus {

class FeatureCache {
 public:
  const Sight* find(const std::string& key);  // valid until the next put
  void put(const std::string& key, Sight sight);
  void clear() { entries_.clear(), place_.clear(), bytes_ = 0; }

 private:
  struct Entry {
    std::string key;
    Sight sight;
    int64_t bytes;
  };
  std::list<Entry> entries_;  // used last, first
  std::unordered_map<std::string, std::list<Entry>::iterator> place_;
  int64_t bytes_ = 0;
};

}  // namespace apus
