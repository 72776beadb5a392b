// SPDX-License-Identifier: Apache-2.0
#include "data/read/parquet/encodings.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace apus {

static_assert(std::endian::native == std::endian::little, "Parquet is little-endian and is read in place");

std::string_view ByteCursor::take(size_t count) {
  require(count <= left(), Fault::Data, where_, ": damaged page (it ends too early)");
  const std::string_view taken = bytes_.substr(at_, count);
  at_ += count;
  return taken;
}

template <class T>
T ByteCursor::value() {
  T out;
  std::memcpy(&out, take(sizeof(T)).data(), sizeof(T));
  return out;
}
template uint8_t ByteCursor::value();
template int32_t ByteCursor::value();
template uint32_t ByteCursor::value();
template int64_t ByteCursor::value();
template float ByteCursor::value();
template double ByteCursor::value();

uint64_t ByteCursor::varint() {
  uint64_t out = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    const auto b = value<uint8_t>();
    out |= static_cast<uint64_t>(b & 127) << (shift & 63);
    if (b < 128) return out;
  }
  fail(Fault::Data, where_, ": damaged page (a number without an end)");
}

int64_t ByteCursor::zigzag() {
  const uint64_t v = varint();
  return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1);
}

namespace {

// Bits from the low end of a byte string.
uint64_t bits_at(std::string_view bytes, size_t bit, int width) {
  uint64_t out = 0;
  for (int got = 0; got < width;) {
    const size_t at = bit + static_cast<size_t>(got);
    const int shift = static_cast<int>(at & 7), count = std::min(8 - shift, width - got);
    const uint64_t piece = static_cast<uint8_t>(bytes[at >> 3]) >> shift & ((1u << count) - 1);
    out |= piece << got;
    got += count;
  }
  return out;
}

}  // namespace

std::vector<uint32_t> decode_hybrid(ByteCursor& in, int width, size_t count) {
  require(width >= 0 && width <= 32, Fault::Data, in.where(), ": damaged page (values of ", width, " bits)");
  std::vector<uint32_t> out;
  if (width == 0) return std::vector<uint32_t>(count, 0);
  out.reserve(count);
  while (out.size() < count) {
    const uint64_t head = in.varint();
    const size_t wanted = count - out.size();
    if (head & 1) {  // groups of eight values, bit-packed
      const size_t bytes = static_cast<size_t>(std::min<uint64_t>(head >> 1, in.left())) * static_cast<size_t>(width);
      const std::string_view packed = in.take(std::min(bytes, in.left()));  // the last group may be cut short
      const size_t held = std::min(packed.size() * 8 / static_cast<size_t>(width), wanted);
      require(held > 0, Fault::Data, in.where(), ": damaged page (an empty run)");
      for (size_t i = 0; i < held; ++i)
        out.push_back(static_cast<uint32_t>(bits_at(packed, i * static_cast<size_t>(width), width)));
    } else {  // one value many times
      const std::string_view raw = in.take(static_cast<size_t>(width + 7) / 8);
      uint32_t value = 0;
      for (size_t i = 0; i < raw.size(); ++i) value |= static_cast<uint32_t>(static_cast<uint8_t>(raw[i])) << (8 * i);
      require(head >> 1 > 0, Fault::Data, in.where(), ": damaged page (an empty run)");
      out.insert(out.end(), static_cast<size_t>(std::min<uint64_t>(head >> 1, wanted)), value);
    }
  }
  return out;
}

std::vector<int64_t> decode_delta(ByteCursor& in, size_t count) {
  const uint64_t block = in.varint(), minis = in.varint(), total = in.varint();
  int64_t value = in.zigzag();
  const bool sane =
      minis > 0 && minis <= 1024 && block > 0 && block <= 1 << 20 && block % minis == 0 && block / minis % 8 == 0;
  require(sane && total == count, Fault::Data, in.where(), ": damaged page (delta header)");
  const size_t per_mini = static_cast<size_t>(block / minis);
  std::vector<int64_t> out;
  out.reserve(count);
  if (total > 0) out.push_back(value);
  size_t left = total > 0 ? static_cast<size_t>(total) - 1 : 0;
  while (left > 0) {
    const int64_t least = in.zigzag();
    const std::string_view widths = in.take(static_cast<size_t>(minis));
    for (size_t m = 0; m < minis && left > 0; ++m) {
      const int width = static_cast<uint8_t>(widths[m]);
      require(width <= 64, Fault::Data, in.where(), ": damaged page (delta of ", width, " bits)");
      const std::string_view packed = in.take(per_mini * static_cast<size_t>(width) / 8);
      const size_t here = std::min(left, per_mini);
      for (size_t i = 0; i < here; ++i) {
        const uint64_t delta = bits_at(packed, i * static_cast<size_t>(width), width) + static_cast<uint64_t>(least);
        value = static_cast<int64_t>(static_cast<uint64_t>(value) + delta);
        out.push_back(value);
      }
      left -= here;
    }
  }
  return out;
}

std::vector<std::string_view> decode_delta_lengths(ByteCursor& in, size_t count) {
  const std::vector<int64_t> lengths = decode_delta(in, count);
  std::vector<std::string_view> out;
  out.reserve(count);
  for (const int64_t length : lengths) {
    require(length >= 0, Fault::Data, in.where(), ": damaged page (a negative length)");
    out.push_back(in.take(static_cast<size_t>(length)));
  }
  return out;
}

std::vector<std::string> decode_delta_strings(ByteCursor& in, size_t count) {
  const std::vector<int64_t> shared = decode_delta(in, count);
  const std::vector<std::string_view> tails = decode_delta_lengths(in, count);
  std::vector<std::string> out;
  out.reserve(count);
  std::string before;
  size_t held = 0;
  for (size_t i = 0; i < count; ++i) {
    require(shared[i] >= 0 && static_cast<size_t>(shared[i]) <= before.size(), Fault::Data, in.where(),
            ": damaged page (a shared prefix)");
    before.resize(static_cast<size_t>(shared[i]));
    before += tails[i];
    held += before.size();
    require(held <= size_t{1} << 31, Fault::Data, in.where(), ": damaged page (more than 2 GiB of text)");
    out.push_back(before);
  }
  return out;
}

}  // namespace apus
