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
    const uint64_t key = static_cast<uint64_t>(left) << 21 | static_cast<uint64_t>(right);
    for (size_t i = mix(key) >> shift_;; i = (i + 1) & mask_) {
      const uint64_t cell = cells_[i];
      if (cell >> 22 == key) return static_cast<uint32_t>(cell & kMaxRules);
      if (cell == kEmpty) return kNone;
    }
  }
  int32_t result(uint32_t rank) const { return results_[rank]; }
  size_t size() const { return results_.size(); }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  void put(uint64_t key, uint64_t rank);
  std::vector<uint64_t> cells_ = std::vector<uint64_t>(2, kEmpty);
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
constexpr size_t kFewSymbols = 96;
size_t merge_few(const MergeTable& rules, int32_t* id, uint32_t* begin, size_t n);

}  // namespace apus
