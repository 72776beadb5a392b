// SPDX-License-Identifier: Apache-2.0
#include "data/read/parquet/compression.h"

#include <dlfcn.h>
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
  int code = inflate(&z, Z_FINISH);
  while (code == Z_STREAM_END && z.avail_out > 0 && z.avail_in > 0) {  // several members in a row are one text
    inflateReset(&z);
    code = inflate(&z, Z_FINISH);
  }
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

std::string hadoop_lz4_decompress(std::span<const std::byte> in, size_t size, std::string_view where) {
  const auto number = [&](size_t at) {  // 4 bytes, the highest first
    size_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<size_t>(in[at + i]);
    return value;
  };
  // Some writers gave raw blocks this number: what does not add up as frames is one.
  size_t framed = 0;
  for (size_t at = 0; at < in.size();) {
    const size_t left = in.size() - at;
    if (left < 8 || number(at + 4) > left - 8 || number(at) > size - framed) return lz4_decompress(in, size, where);
    framed += number(at), at += 8 + number(at + 4);
  }
  if (framed != size) return lz4_decompress(in, size, where);
  std::string out;
  out.reserve(size);
  for (size_t at = 0; at < in.size(); at += 8 + number(at + 4))
    out += lz4_decompress(in.subspan(at + 8, number(at + 4)), number(at), where);
  return out;
}

std::string brotli_decompress(std::span<const std::byte> in, size_t size, std::string_view where) {
  // Few files need it, so the program does not: it is opened where it is installed.
  using Decode = int (*)(size_t in_size, const uint8_t* in, size_t* out_size, uint8_t* out);
  static const Decode decode = [] {
    void* const library = ::dlopen("libbrotlidec.so.1", RTLD_NOW | RTLD_LOCAL);
    return library ? reinterpret_cast<Decode>(::dlsym(library, "BrotliDecoderDecompress")) : nullptr;
  }();
  require(decode != nullptr, Fault::Data, where,
          ": compressed with brotli, and libbrotlidec.so.1 is not installed (Debian, Ubuntu: apt install libbrotli1; "
          "RHEL: dnf install libbrotli); or write the file with zstd");
  std::string out(size, '\0');
  size_t made = size;
  const int code =
      decode(in.size(), reinterpret_cast<const uint8_t*>(in.data()), &made, reinterpret_cast<uint8_t*>(out.data()));
  require(code == 1 && made == size, Fault::Data, where, ": damaged brotli data");
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
    case Codec::Lz4Hadoop:
      return hadoop_lz4_decompress(in, size, where);
    case Codec::Brotli:
      return brotli_decompress(in, size, where);
    default:
      break;
  }
  fail(Fault::Data, where, ": compressed with ", codec == Codec::Lzo ? "lzo" : "an unknown method",
       ", which is not read; write the file with snappy, gzip, zstd or lz4");
}

}  // namespace apus
