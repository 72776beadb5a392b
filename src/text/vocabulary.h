// SPDX-License-Identifier: Apache-2.0
// Strings by id and ids by string: one block of bytes and a flat table.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace apus {

inline uint64_t mix(uint64_t x) {
  x *= 0x9E3779B97F4A7C15u;
  return x ^ (x >> 32);
}

inline uint64_t hash_bytes(const char* p, size_t n) {
  uint64_t h = n * 0xD6E8FEB86659FD93u, word = 0;
  for (; n > 8; p += 8, n -= 8) {
    std::memcpy(&word, p, 8);
    h = mix(h ^ word);
  }
  if (n == 8) {
    std::memcpy(&word, p, 8);
  } else if (n >= 4) {
    uint32_t a, b;
    std::memcpy(&a, p, 4);
    std::memcpy(&b, p + n - 4, 4);
    word = a | static_cast<uint64_t>(b) << 32;
  } else if (n > 0) {
    word = static_cast<unsigned char>(p[0]) | static_cast<uint64_t>(static_cast<unsigned char>(p[n / 2])) << 8 |
           static_cast<uint64_t>(static_cast<unsigned char>(p[n - 1])) << 16;
  }
  h = mix(h ^ word);
  return mix(h);
}

class Vocabulary {
 public:
  static constexpr int32_t kIdBits = 21;

  void reserve(size_t tokens, size_t bytes);
  // An id given again: the later string counts. A string given again: its largest id counts.
  void add(std::string_view token, int32_t id);
  void finish();  // builds the table; nothing is added afterwards

  int32_t size() const { return static_cast<int32_t>(entries_.size()); }  // largest id + 1
  bool has(int32_t id) const { return id >= 0 && id < size() && entries_[static_cast<size_t>(id)].offset != kNone; }
  std::string_view operator[](int32_t id) const {
    const Entry e = entries_[static_cast<size_t>(id)];
    return std::string_view(bytes_).substr(e.offset, e.length);
  }
  size_t longest() const { return longest_; }

  // -1 if there is none.
  int32_t find(std::string_view token) const {
    if (table_.empty()) return -1;
    const uint64_t hash = hash_bytes(token.data(), token.size());
    for (size_t i = hash >> shift_;; i = (i + 1) & (table_.size() - 1)) {
      const uint64_t cell = table_[i];
      if (cell == kEmpty) return -1;
      if ((cell ^ hash) >> kIdBits) continue;
      const auto id = static_cast<int32_t>(cell & kIdMask);
      if ((*this)[id] == token) return id;
    }
  }

 private:
  static constexpr uint32_t kNone = ~0u;
  static constexpr uint64_t kEmpty = ~uint64_t{0}, kIdMask = (1u << kIdBits) - 1;
  struct Entry {
    uint32_t offset = kNone, length = 0;
  };
  std::string bytes_;
  std::vector<Entry> entries_;   // by id
  std::vector<uint64_t> table_;  // upper bits of the hash, id below
  int shift_ = 63;
  size_t longest_ = 0;
};

}  // namespace apus
