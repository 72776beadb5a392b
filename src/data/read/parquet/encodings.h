// SPDX-License-Identifier: Apache-2.0
// How Parquet packs values into pages: bit-packed runs, deltas, byte arrays.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace apus {

// Reads little-endian values from memory with its end checked.
class ByteCursor {
 public:
  ByteCursor(std::string_view bytes, std::string_view where) : bytes_(bytes), where_(where) {}
  std::string_view take(size_t count);
  template <class T>
  T value();
  uint64_t varint();
  int64_t zigzag();
  size_t left() const { return bytes_.size() - at_; }
  std::string_view rest() const { return bytes_.substr(at_); }
  std::string_view where() const { return where_; }

 private:
  std::string_view bytes_, where_;
  size_t at_ = 0;
};

// `count` values of the run-length / bit-packed hybrid, `width` bits each.
std::vector<uint32_t> decode_hybrid(ByteCursor& in, int width, size_t count);
// DELTA_BINARY_PACKED; it must hold exactly `count` values.
std::vector<int64_t> decode_delta(ByteCursor& in, size_t count);
// DELTA_LENGTH_BYTE_ARRAY: views into the page.
std::vector<std::string_view> decode_delta_lengths(ByteCursor& in, size_t count);
// DELTA_BYTE_ARRAY: each value shares a beginning with the one before it.
std::vector<std::string> decode_delta_strings(ByteCursor& in, size_t count);

}  // namespace apus
