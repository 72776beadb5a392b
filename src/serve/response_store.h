// SPDX-License-Identifier: Apache-2.0
// The responses of late, so that a request may go on from one of them. In memory, bounded: the oldest go first.
#pragma once

#include <list>
#include <mutex>
#include <optional>
#include <string>

#include "base/json.h"

namespace apus {

class ResponseStore {  // thread-safe
 public:
  explicit ResponseStore(size_t most_bytes = 64 << 20) : most_bytes_(most_bytes) {}

  struct Kept {
    Json response;
    Json messages;  // the conversation up to it, with it
  };
  void put(const std::string& id, const Kept& kept);
  std::optional<Kept> get(const std::string& id) const;
  bool erase(const std::string& id);

 private:
  struct Entry {
    std::string id, response, messages;  // as text: a tenth of the memory
    size_t bytes() const { return id.size() + response.size() + messages.size(); }
  };
  const size_t most_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the newest first
  size_t bytes_ = 0;
};

}  // namespace apus
