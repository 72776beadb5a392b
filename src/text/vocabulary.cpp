// SPDX-License-Identifier: Apache-2.0
#include "text/vocabulary.h"

#include <algorithm>
#include <bit>

namespace apus {

void Vocabulary::reserve(size_t tokens, size_t bytes) {
  entries_.reserve(tokens);
  bytes_.reserve(bytes);
}

void Vocabulary::add(std::string_view token, int32_t id) {
  const auto at = static_cast<size_t>(id);
  if (at >= entries_.size()) entries_.resize(at + 1);
  entries_[at] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(token.size())};
  bytes_ += token;
  longest_ = std::max(longest_, token.size());
}

void Vocabulary::finish() {
  const size_t cells = std::bit_ceil(entries_.size() * 3 / 2 + 2);
  table_.assign(cells, kEmpty);
  shift_ = 64 - std::countr_zero(cells);
  for (int32_t id = 0; id < size(); ++id) {
    if (!has(id)) continue;
    const std::string_view token = (*this)[id];
    const uint64_t hash = hash_bytes(token.data(), token.size()), cell = (hash & ~kIdMask) | static_cast<uint64_t>(id);
    size_t i = hash >> shift_;
    while (table_[i] != kEmpty &&
           (((table_[i] ^ hash) >> kIdBits) || (*this)[static_cast<int32_t>(table_[i] & kIdMask)] != token))
      i = (i + 1) & (cells - 1);
    table_[i] = cell;
  }
}

}  // namespace apus
