// SPDX-License-Identifier: Apache-2.0
#include "data/read/parquet/compression.h"

#include <zlib.h>
#include <zstd.h>

#include <cstdint>

#include "base/error.h"

namespace apus {

namespace {

std::string gzip_decompress(std::span<const std::byte> in, size_t size, std::string_view where) {
  std::string out(size, '\0');
  z_stream z{};
  require(inflateInit2(&z, 15 + 32) == Z_OK, Fault::Io, "zlib cannot start");
  z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
  z.avail_in = static_cast<uInt>(in.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(size);
  const int code = inflate(&z, Z_FINISH);
  const bool whole = code == Z_STREAM_END && z.avail_out == 0;
  inflateEnd(&z);
  require(whole, Fault::Data, where, ": damaged gzip data");
  return out;
}

std::string zstd_decompress(std::span<const std::byte> in, size_t size, std::string_view where) {
  std::string out(size, '\0');
  const size_t got = ZSTD_decompress(out.data(), size, in.data(), in.size());
  require(!ZSTD_isError(got) && got == size, Fault::Data, where, ": damaged zstd data");
  return out;
}

// Appends a copy of what stands `back` bytes before the end; the two may overlap, which repeats a pattern.
bool copy_back(std::string& out, size_t back, size_t count, size_t limit) {
  if (back == 0 || back > out.size() || count > limit - out.size()) return false;
  size_t from = out.size() - back;
  out.resize(out.size() + count);
  for (char* to = out.data() + from + back; count > 0; --count) *to++ = out[from++];
  return true;
}

}  // namespace

std::string snappy_decompress(std::span<const std::byte> in, size_t size, std::string_view where) {
  const auto* p = reinterpret_cast<const uint8_t*>(in.data());
  const uint8_t* const end = p + in.size();
  const auto damaged = [&](bool ok) { require(ok, Fault::Data, where, ": damaged snappy data"); };
  uint64_t stated = 0;
  for (int shift = 0;; shift += 7) {
    damaged(p < end && shift < 35);
    stated |= static_cast<uint64_t>(*p & 127) << shift;
    if (*p++ < 128) break;
  }
  damaged(stated == size);
  std::string out;
  out.reserve(size);
  const auto number = [&](int bytes) {
    damaged(end - p >= bytes);
    size_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= static_cast<size_t>(*p++) << (8 * i);
    return value;
  };
  while (p < end) {
    const uint8_t tag = *p++;
    // A literal: its length in the tag, or in the 1 to 4 bytes behind it.
    if ((tag & 3) == 0) {
      const size_t count = (tag >> 2 < 60 ? tag >> 2 : number((tag >> 2) - 59)) + 1;
      damaged(count <= static_cast<size_t>(end - p) && count <= size - out.size());
      out.append(reinterpret_cast<const char*>(p), count);
      p += count;
    } else if ((tag & 3) == 1) {
      const size_t back = static_cast<size_t>(tag >> 5) << 8 | number(1);
      damaged(copy_back(out, back, (tag >> 2 & 7) + 4u, size));
    } else {
      const size_t back = number((tag & 3) == 2 ? 2 : 4);
      damaged(copy_back(out, back, (tag >> 2) + 1u, size));
    }
  }
  damaged(out.size() == size);
  return out;
}

std::string lz4_decompress(std::span<const std::byte> in, size_t size, std::string_view where) {
  const auto* p = reinterpret_cast<const uint8_t*>(in.data());
  const uint8_t* const end = p + in.size();
  const auto damaged = [&](bool ok) { require(ok, Fault::Data, where, ": damaged LZ4 data"); };
  std::string out;
  out.reserve(size);
  const auto length = [&](size_t nibble) {
    size_t count = nibble;
    for (uint8_t more = 255; nibble == 15 && more == 255;) {
      damaged(p < end);
      count += more = *p++;
    }
    return count;
  };
  while (p < end) {
    const uint8_t token = *p++;
    const size_t literal = length(token >> 4);
    damaged(literal <= static_cast<size_t>(end - p) && literal <= size - out.size());
    out.append(reinterpret_cast<const char*>(p), literal);
    p += literal;
    if (p == end) break;  // the last sequence has no match
    damaged(end - p >= 2);
    const size_t back = p[0] | static_cast<size_t>(p[1]) << 8;
    p += 2;
    damaged(copy_back(out, back, length(token & 15) + 4, size));
  }
  damaged(out.size() == size);
  return out;
}

std::string decompress(Codec codec, std::span<const std::byte> in, size_t size, std::string_view where) {
  // Even zstd makes no more than this of a byte; memory for what is stated beyond that is not given.
  require(size <= in.size() * 40000 + (size_t{1} << 20) && size <= size_t{1} << 31, Fault::Data, where,
          ": damaged page (", in.size(), " bytes are said to hold ", size, ")");
  switch (codec) {
    case Codec::None:
      require(in.size() == size, Fault::Data, where, ": damaged page (its sizes differ)");
      return {reinterpret_cast<const char*>(in.data()), in.size()};
    case Codec::Snappy:
      return snappy_decompress(in, size, where);
    case Codec::Gzip:
      return gzip_decompress(in, size, where);
    case Codec::Zstd:
      return zstd_decompress(in, size, where);
    case Codec::Lz4:
      return lz4_decompress(in, size, where);
    default:
      break;
  }
  static const char* const names[] = {"none", "snappy", "gzip", "lzo", "brotli", "lz4 (Hadoop's framing)",
                                      "zstd", "lz4"};
  const auto index = static_cast<size_t>(codec);
  fail(Fault::Data, where, ": compressed with ", index < std::size(names) ? names[index] : "an unknown method",
       ", which is not read; write the file with snappy, gzip, zstd or lz4 (raw)");
}

}  // namespace apus
