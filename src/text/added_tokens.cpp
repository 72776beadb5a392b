// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "text/unicode.h"

namespace apus {

void AddedTokenFinder::build(const std::vector<const AddedToken*>& tokens, const std::vector<std::string>& patterns) {
  nodes_.assign(1, {});
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (patterns[i].empty()) continue;
    uint32_t at = 0;
    for (const char c : patterns[i]) {
      const auto byte = static_cast<unsigned char>(c);
      auto& next = nodes_[at].next;
      const auto it = std::lower_bound(next.begin(), next.end(), std::pair<unsigned char, uint32_t>{byte, 0});
      if (it != next.end() && it->first == byte) {
        at = it->second;
        continue;
      }
      const auto made = static_cast<uint32_t>(nodes_.size());
      next.insert(it, {byte, made});
      nodes_.push_back({});  // `next` is no longer valid
      at = made;
    }
    if (nodes_[at].token < 0) nodes_[at].token = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(tokens[i]);
    starts_[static_cast<unsigned char>(patterns[i][0])] = true;
  }
  if (std::count(std::begin(starts_), std::end(starts_), true) == 1)
    only_start_ = static_cast<int>(std::find(std::begin(starts_), std::end(starts_), true) - std::begin(starts_));
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view s, size_t from) const {
  for (size_t begin = from; begin < s.size(); ++begin) {
    if (only_start_ >= 0) {
      const void* hit = std::memchr(s.data() + begin, only_start_, s.size() - begin);
      if (!hit) break;
      begin = static_cast<size_t>(static_cast<const char*>(hit) - s.data());
    } else if (!starts_[static_cast<unsigned char>(s[begin])]) {
      continue;
    }
    Match match;
    uint32_t at = 0;
    for (size_t i = begin; i < s.size(); ++i) {
      const auto byte = static_cast<unsigned char>(s[i]);
      const auto& next = nodes_[at].next;
      const auto it = std::lower_bound(next.begin(), next.end(), std::pair<unsigned char, uint32_t>{byte, 0});
      if (it == next.end() || it->first != byte) break;
      at = it->second;
      if (nodes_[at].token >= 0) match = {tokens_[static_cast<size_t>(nodes_[at].token)], begin, i + 1};
    }
    if (match.token) return match;
  }
  return {};
}

bool AddedTokenFinder::accept(std::string_view s, size_t done, Match& match) {
  const unicode::CharTable& table = unicode::CharTable::get();
  const char *base = s.data(), *end = base + s.size();
  const char *left = base + match.begin, *right = base + match.end;
  const auto before = [&](const char*& p) { return table[unicode::previous_char(p)]; };
  const auto behind = [&](const char*& p) { return table[unicode::next_char(p)]; };
  if (match.token->single_word) {
    const char *l = left, *r = right;
    if ((l > base && (before(l) & unicode::kWord)) || (r < end && (behind(r) & unicode::kWord))) return false;
  }
  if (match.token->lstrip) {
    for (const char* p = left; left > base + done && (before(p) & unicode::kSpace);) left = p;
    left = std::max(left, base + done);
  }
  if (match.token->rstrip)
    for (const char* p = right; right < end && (behind(p) & unicode::kSpace);) right = p;
  match.begin = static_cast<size_t>(left - base);
  match.end = static_cast<size_t>(right - base);
  return match.begin < match.end;  // nothing may be left of it by the one before
}

}  // namespace apus
