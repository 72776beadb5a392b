// SPDX-License-Identifier: Apache-2.0
// A named list that files add themselves to. Duplicates are reported at the first look-up, not in a static initialiser.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"

namespace apus {

template <class Entry>
class Registry {
 public:
  static Registry& of() {
    static Registry registry;
    return registry;
  }
  void add(const std::string& name, Entry entry) {
    if (!entries_.emplace(name, std::move(entry)).second) duplicate_ = name;
  }
  const Entry* find(const std::string& name) const {
    check();
    const auto it = entries_.find(name);
    return it == entries_.end() ? nullptr : &it->second;
  }
  const std::map<std::string, Entry>& all() const {
    check();
    return entries_;
  }

 private:
  void check() const { require(duplicate_.empty(), Fault::Bug, "'", duplicate_, "' is registered twice"); }
  std::map<std::string, Entry> entries_;
  std::string duplicate_;
};

}  // namespace apus
