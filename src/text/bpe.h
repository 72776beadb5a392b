// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding: the merge rules as one flat table, and their application to a row of symbols.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "text/token_text.h"
#include "text/vocabulary.h"

namespace apus {

class MergeTable {
 public:
  static constexpr uint32_t kNone = ~0u;
  static constexpr size_t kMaxRules = (size_t{1} << 22) - 1;  // a cell: 21 + 21 bits of ids, 22 of rank

  void reserve(size_t rules);
  // Rules in order of rank; a pair given again keeps its later rank.
  void add(int32_t left, int32_t right, int32_t result);

  // The rank of merging two ids, kNone if they do not merge.
  uint32_t rank(int32_t left, int32_t right) const {
    const uint64_t key = static_cast<uint64_t>(left) << 21 | static_cast<uint64_t>(right), hash = mix(key);
    if (!(filter_[hash >> filter_shift_ >> 6] >> (hash >> filter_shift_ & 63) & 1)) return kNone;
    for (size_t i = hash >> shift_;; i = (i + 1) & mask_) {
      const uint64_t cell = cells_[i];
      if (cell >> 22 == key) return static_cast<uint32_t>(cell & kMaxRules);
      if (cell == kEmpty) return kNone;
    }
  }
  int32_t result(uint32_t rank) const { return results_[rank]; }
  // True if each rule comes after the rules that make its two sides, and no two rules make the same token.
  bool ordered() const;
  size_t size() const { return results_.size(); }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  void put(uint64_t key, uint64_t rank);
  std::vector<uint64_t> cells_ = std::vector<uint64_t>(2, kEmpty);
  // One bit for each of eight times as many cells: it tells quickly that a pair has no rule, as most have none.
  std::vector<uint64_t> filter_ = std::vector<uint64_t>(1, 0);
  int filter_shift_ = 58;
  std::vector<int32_t> results_;
  size_t mask_ = 1;
  int shift_ = 63;
};

// A row of symbols; `begin` holds where each begins in the piece, and the end of the last one.
struct Symbols {
  std::vector<int32_t> id;
  std::vector<uint32_t> begin;
};

// Applies the rules, lowest rank first and leftmost among equals, until none applies. n log n in the number of symbols.
void merge(const MergeTable& rules, Symbols& symbols);

// The same for at most kFewSymbols, in place; returns how many are left. `begin` (of n + 1) may be null.
constexpr size_t kFewSymbols = 128;
size_t merge_few(const MergeTable& rules, int32_t* id, uint32_t* begin, size_t n);

// Characters of several bytes that may be taken as one symbol from the start. Byte-level rules build a character from
// its bytes before they use it (checked here: every rule comes after the rules that make its two sides), so starting
// with the whole character gives the same result, unless some token takes in part of a character together with its
// neighbour. The byte pairs at which that can happen are kept; at those the bytes stay apart.
class WholeCharacters {
 public:
  void build(const Vocabulary& bytes, const MergeTable& rules);

  // The symbol of the character at word[at, at + length), or -1 if its bytes must be taken one by one.
  int32_t symbol(std::string_view word, size_t at, size_t length) const {
    if (ids_.empty() || length > 3) return -1;
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(word[i]); };
    const size_t c = length == 2 ? (byte(at) & 31u) << 6 | (byte(at + 1) & 63u)
                                 : (byte(at) & 15u) << 12 | (byte(at + 1) & 63u) << 6 | (byte(at + 2) & 63u);
    const int32_t id = ids_[c];
    if (id < 0 || (at > 0 && mixed(byte(at - 1), byte(at)))) return -1;
    const size_t end = at + length;
    return end < word.size() && mixed(byte(end - 1), byte(end)) ? -1 : id;
  }

 private:
  bool mixed(unsigned left, unsigned right) const { return mixed_[left << 8 | right]; }
  // Symbols by code point up to U+FFFF; empty if the rules do not allow the short cut.
  std::vector<int32_t> ids_;
  std::vector<bool> mixed_;  // last byte of a character, first byte of the next
};

}  // namespace apus
