// SPDX-License-Identifier: Apache-2.0
#include "guide/vocabulary.h"

#include <algorithm>

namespace apus::guide {

Vocabulary::Vocabulary(const Tokenizer& tokenizer, std::span<const int32_t> stop_ids) : byte_exists_(256) {
  const int32_t size = tokenizer.vocab_size();
  for (const int32_t id : stop_ids)
    if (id >= 0 && id < size) stops_.push_back(id);
  std::sort(stops_.begin(), stops_.end());
  stops_.erase(std::unique(stops_.begin(), stops_.end()), stops_.end());
  std::vector<int32_t> order;
  first_.push_back(0);
  for (int32_t id = 0; id < size; ++id) {
    const std::string text = tokenizer.has(id) ? tokenizer.token_bytes(id) : "";
    if (tokenizer.is_special(id)) {
      if (!text.empty()) specials_.emplace(text, id);
    } else if (!text.empty() && text.size() <= kLongest && !std::binary_search(stops_.begin(), stops_.end(), id)) {
      all_ += text;
      if (text == "\n" || text == "\n\n") breaks_.push_back(id);
      order.push_back(id);
    }
    first_.push_back(static_cast<uint32_t>(all_.size()));
  }
  for (const int32_t id : order)
    if (const auto text = bytes(id); text.size() == 1) byte_exists_[static_cast<uint8_t>(text[0])] = true;
  build(std::move(order));
}

std::string_view Vocabulary::bytes(int32_t token) const {
  const auto t = static_cast<size_t>(token);
  if (token < 0 || t + 1 >= first_.size()) return {};
  return std::string_view(all_).substr(first_[t], first_[t + 1] - first_[t]);
}

int32_t Vocabulary::special(std::string_view text) const {
  const auto found = specials_.find(text);
  return found == specials_.end() ? -1 : found->second;
}

void Vocabulary::build(std::vector<int32_t> order) {
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const auto x = bytes(a), y = bytes(b);
    return x != y ? x < y : a < b;
  });
  std::vector<uint32_t> open;  // the places on the way to the last token
  const auto close_to = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) places_[open.back()].end = static_cast<uint32_t>(places_.size());
  };
  std::string_view before;
  for (const int32_t id : order) {
    const std::string_view text = bytes(id);
    const auto differs = std::mismatch(before.begin(), before.end(), text.begin(), text.end());
    // Of tokens with the same bytes each has a place of its own at the end of the common way.
    close_to(std::min(static_cast<size_t>(differs.first - before.begin()), text.size() - 1));
    while (open.size() < text.size()) {
      open.push_back(static_cast<uint32_t>(places_.size()));
      const auto depth = static_cast<uint8_t>(open.size());
      places_.push_back({0, -1, static_cast<uint8_t>(text[depth - 1u]), depth});
    }
    places_.back().token = id;
    before = text;
  }
  close_to(0);
}

}  // namespace apus::guide
