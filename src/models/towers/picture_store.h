// SPDX-License-Identifier: Apache-2.0
// What layers that read pictures have made of the latest ones, by their digests: as much as is kept beside the cache
// for the texts that run.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "nn/step.h"

namespace apus {

class PictureStore {
 public:
  // Null: it is not here. What is found is the latest then.
  std::shared_ptr<PictureKeys> find(const std::string& key);
  // The oldest go where there are more than `most`, or than `needed`, those of one step.
  void put(const std::string& key, std::shared_ptr<PictureKeys> keys, int64_t needed);
  void keep(int64_t most) { most_ = most; }
  void clear() { entries_.clear(), place_.clear(); }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<PictureKeys> keys;
  };
  std::list<Entry> entries_;  // used last, first
  std::unordered_map<std::string, std::list<Entry>::iterator> place_;
  int64_t most_ = 16;
};

}  // namespace apus
