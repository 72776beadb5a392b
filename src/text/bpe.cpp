// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>
#include <unordered_map>

namespace apus {

void MergeTable::reserve(size_t rules) {
  const size_t cells = std::bit_ceil(rules * 3 / 2 + 2);
  cells_.assign(cells, kEmpty);
  mask_ = cells - 1;
  shift_ = 64 - std::countr_zero(cells);
  filter_.assign(std::max<size_t>(1, cells / 8), 0);
  filter_shift_ = 64 - std::countr_zero(filter_.size() * 64);
  results_.reserve(rules);
}

void MergeTable::add(int32_t left, int32_t right, int32_t result) {
  put(static_cast<uint64_t>(left) << 21 | static_cast<uint64_t>(right), results_.size());
  results_.push_back(result);
}

void MergeTable::put(uint64_t key, uint64_t rank) {
  const uint64_t hash = mix(key);
  filter_[hash >> filter_shift_ >> 6] |= uint64_t{1} << (hash >> filter_shift_ & 63);
  size_t i = hash >> shift_;
  while (cells_[i] != kEmpty && cells_[i] >> 22 != key) i = (i + 1) & mask_;
  cells_[i] = key << 22 | rank;
}

bool MergeTable::ordered() const {
  std::unordered_map<int32_t, uint64_t> made;
  made.reserve(results_.size());
  for (size_t rank = 0; rank < results_.size(); ++rank)
    if (!made.emplace(results_[rank], rank).second) return false;
  const auto before = [&](uint64_t id, uint64_t rank) {
    const auto it = made.find(static_cast<int32_t>(id));
    return it == made.end() || it->second < rank;
  };
  for (const uint64_t cell : cells_) {
    if (cell == kEmpty) continue;
    const uint64_t rank = cell & kMaxRules, left = cell >> 43, right = cell >> 22 & ((1u << 21) - 1);
    if (!before(left, rank) || !before(right, rank)) return false;
  }
  return true;
}

void WholeCharacters::build(const Vocabulary& bytes, const MergeTable& rules) {
  if (!rules.ordered()) return;
  ids_.assign(0x10000, -1);
  mixed_.assign(0x10000, false);
  const auto lead = [](char c) { return !unicode::is_continuation(c); };
  for (int32_t id = 0; id < bytes.size(); ++id) {
    if (!bytes.has(id)) continue;
    const std::string_view token = bytes[id];
    const auto mark = [&](size_t i) {
      mixed_[static_cast<size_t>(static_cast<unsigned char>(token[i - 1])) << 8 |
             static_cast<unsigned char>(token[i])] = true;
    };
    size_t first = 1, last = token.empty() ? 0 : token.size() - 1;  // first and last starts of characters within
    while (first < token.size() && !lead(token[first])) ++first;
    while (last > 0 && !lead(token[last])) --last;
    const bool whole_end =
        !token.empty() && unicode::sequence(token.substr(last)) == static_cast<int>(token.size() - last);
    if (first < token.size() && !lead(token[0])) mark(first);
    if (last > 0 && !whole_end) mark(last);
    if (!whole_end || last != 0 || token.size() < 2 || token.size() > 3 || bytes.find(token) != id) continue;
    int32_t symbol[3];
    for (size_t i = 0; i < token.size(); ++i) symbol[i] = bytes.find(token.substr(i, 1));
    if (merge_few(rules, symbol, nullptr, token.size()) != 1 || symbol[0] != id) continue;
    const char* p = token.data();
    ids_[unicode::next_char(p)] = id;
  }
}

size_t merge_few(const MergeTable& rules, int32_t* id, uint32_t* begin, size_t n) {
  // Of merging i and i + 1. Rank and place fit one word, so that finding the least needs no branches.
  static_assert(MergeTable::kMaxRules < (size_t{1} << 22) && kFewSymbols <= 128);
  constexpr uint32_t kNever = ~0u << 7;
  uint32_t rank[kFewSymbols];
  const auto look = [&](size_t i) {
    const uint32_t found = rules.rank(id[i], id[i + 1]);
    rank[i] = found == MergeTable::kNone ? kNever : found << 7;
  };
  for (size_t i = 0; i + 1 < n; ++i) look(i);
  while (n > 1) {
    uint32_t best = kNever;
    for (uint32_t i = 0; i + 1 < n; ++i) best = std::min(best, rank[i] | i);
    if (best >= kNever) break;
    const size_t at = best & 127;
    id[at] = rules.result(best >> 7);
    --n;
    for (size_t i = at + 1; i < n; ++i) id[i] = id[i + 1];
    for (size_t i = at + 1; i + 1 < n; ++i) rank[i] = rank[i + 1];
    if (begin) std::memmove(begin + at + 1, begin + at + 2, (n - at) * sizeof *begin);
    if (at + 1 < n) look(at);
    if (at > 0) look(at - 1);
  }
  return n;
}

void merge(const MergeTable& rules, Symbols& symbols) {
  constexpr uint32_t kGone = ~0u;
  auto& id = symbols.id;
  const auto n = static_cast<uint32_t>(id.size());
  if (n < 2) return;
  std::vector<uint32_t> next(n), before(n), rank(n, MergeTable::kNone);
  // Rank in the upper half, place in the lower: the order of application.
  std::vector<uint64_t> waiting;
  waiting.reserve(n);
  for (uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1 < n ? i + 1 : kGone, before[i] = i > 0 ? i - 1 : kGone;
    if (i + 1 < n && (rank[i] = rules.rank(id[i], id[i + 1])) != MergeTable::kNone)
      waiting.push_back(uint64_t{rank[i]} << 32 | i);
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue(std::greater<>{}, std::move(waiting));
  const auto look = [&](uint32_t i) {
    rank[i] = next[i] == kGone ? MergeTable::kNone : rules.rank(id[i], id[next[i]]);
    if (rank[i] != MergeTable::kNone) queue.push(uint64_t{rank[i]} << 32 | i);
  };
  while (!queue.empty()) {
    const uint64_t top = queue.top();
    queue.pop();
    const auto at = static_cast<uint32_t>(top);
    if (rank[at] != top >> 32) continue;  // a symbol of this pair has changed since
    const uint32_t gone = next[at];
    id[at] = rules.result(rank[at]);
    next[at] = next[gone];
    if (next[at] != kGone) before[next[at]] = at;
    rank[gone] = MergeTable::kNone;
    look(at);
    if (before[at] != kGone) look(before[at]);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i != kGone; i = next[i], ++kept) id[kept] = id[i], symbols.begin[kept] = symbols.begin[i];
  symbols.begin[kept] = symbols.begin[n];
  id.resize(kept);
  symbols.begin.resize(kept + 1);
}

}  // namespace apus
