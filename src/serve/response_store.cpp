// SPDX-License-Identifier: Apache-2.0
#include "serve/response_store.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace apus {

void ResponseStore::put(const std::string& id, const Kept& kept) {
  Entry entry{id, json_text(kept.response), json_text(kept.messages)};
  const std::lock_guard lock(mutex_);
  bytes_ += entry.bytes();
  entries_.push_front(std::move(entry));
  while (bytes_ > most_bytes_) {
    bytes_ -= entries_.back().bytes();
    entries_.pop_back();
  }
}

std::optional<ResponseStore::Kept> ResponseStore::get(const std::string& id) const {
  std::string response, messages;
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.id == id; });
    if (at == entries_.end()) return std::nullopt;
    response = at->response;
    messages = at->messages;
  }
  return Kept{Json::parse(response), Json::parse(messages)};
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.id == id; });
  if (at == entries_.end()) return false;
  bytes_ -= at->bytes();
  entries_.erase(at);
  return true;
}

}  // namespace apus
