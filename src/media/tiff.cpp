// SPDX-License-Identifier: Apache-2.0
// TIFF 6: the first picture of a file. Grey, palette, RGB and CMYK of 1 to 16 bits, in strips or tiles; uncompressed,
// PackBits, LZW or deflate, with or without differences.
#include <zlib.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "media/decoders.h"

namespace apus {

namespace {

constexpr size_t kMostEntries = 4096, kMostPieces = 1 << 20;

enum Tag : unsigned {
  kWidth = 256,
  kHeight = 257,
  kBits = 258,
  kCompression = 259,
  kPhotometric = 262,
  kFillOrder = 266,
  kStripOffsets = 273,
  kSamples = 277,
  kRowsPerStrip = 278,
  kStripBytes = 279,
  kPlanar = 284,
  kPredictor = 317,
  kPalette = 320,
  kTileWidth = 322,
  kTileHeight = 323,
  kTileOffsets = 324,
  kTileBytes = 325,
  kSampleFormat = 339,
};

std::string unpacked_bits(std::string_view in, size_t wanted) {
  std::string out;
  for (size_t at = 0; at < in.size() && out.size() < wanted;) {
    const auto n = static_cast<int8_t>(in[at++]);
    if (n >= 0)
      out += in.substr(at, static_cast<size_t>(n) + 1), at += static_cast<size_t>(n) + 1;
    else if (n != -128 && at < in.size())
      out.append(static_cast<size_t>(1 - n), in[at++]);
  }
  return out;
}

std::string inflated(std::string_view in, size_t wanted) {
  std::string out(wanted, '\0');
  z_stream z{};
  require(inflateInit(&z) == Z_OK, Fault::Data, "zlib cannot start");
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data())), z.avail_in = static_cast<uInt>(in.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data()), z.avail_out = static_cast<uInt>(out.size());
  inflate(&z, Z_FINISH);
  out.resize(wanted - z.avail_out);
  inflateEnd(&z);
  return out;
}

// Codes of 9 to 12 bits, the highest bit first; widths grow one code early.
std::string unpacked_lzw(std::string_view in, size_t wanted) {
  constexpr unsigned kClear = 256, kEnd = 257, kNone = 4096;
  struct Entry {
    unsigned before;
    char last, first;
    unsigned length;
  };
  std::vector<Entry> table(4096);
  for (unsigned i = 0; i < 256; ++i) table[i] = {kNone, static_cast<char>(i), static_cast<char>(i), 1};
  unsigned next = 258, width = 9, before = kNone, bits = 0;
  int held = 0;
  std::string out;
  size_t at = 0;
  while (out.size() < wanted) {
    while (held < static_cast<int>(width)) {
      if (at == in.size()) return out;
      bits = bits << 8 | static_cast<uint8_t>(in[at++]), held += 8;
    }
    const unsigned code = bits >> (held - static_cast<int>(width)) & ((1U << width) - 1);
    held -= static_cast<int>(width);
    if (code == kEnd) break;
    if (code == kClear) {
      next = 258, width = 9, before = kNone;
      continue;
    }
    require(code < next || (code == next && before != kNone), Fault::Data, "a damaged TIFF picture (LZW)");
    require(code != kEnd && (before != kNone || code < 256), Fault::Data, "a damaged TIFF picture (LZW)");
    if (before != kNone && next < 4096) {
      const char first = code == next ? table[before].first : table[code].first;
      table[next++] = {before, first, table[before].first, table[before].length + 1};
    }
    const size_t end = out.size() + table[code].length;
    out.resize(end);
    size_t put = end;
    for (unsigned c = code; c != kNone; c = table[c].before) out[--put] = table[c].last;
    before = code;
    if (next >= (1U << width) - 1 && width < 12) ++width;
  }
  return out;
}

class TiffReader {
 public:
  TiffReader(std::string_view bytes, const ImageLimits& limits) : bytes_(bytes), limits_(limits) {}

  Image read() {
    little_ = bytes_[0] == 'I';
    directory(number(4, 4));
    width_ = one(kWidth, 0), height_ = one(kHeight, 0);
    Image out = blank_image(width_, height_, limits_);
    samples_ = one(kSamples, 1), compression_ = one(kCompression, 1), predictor_ = one(kPredictor, 1);
    photometric_ = one(kPhotometric, 1);
    const std::vector<int64_t> bits = values(kBits);
    bits_ = bits.empty() ? 1 : bits[0];
    check(std::all_of(bits.begin(), bits.end(), [&](int64_t b) { return b == bits_; }) &&
              (bits_ == 1 || bits_ == 2 || bits_ == 4 || bits_ == 8 || bits_ == 16) && samples_ >= 1 && samples_ <= 8,
          str(samples_, " samples of ", bits_, " bits"));
    check(bits_ >= 8 || samples_ == 1, str(samples_, " samples of ", bits_, " bits"));
    check(one(kPlanar, 1) == 1 || samples_ == 1, "colours in planes of their own");
    check(one(kFillOrder, 1) == 1, "bits in the other order");
    check(one(kSampleFormat, 1) == 1, "samples that are no whole numbers above 0");
    check(predictor_ == 1 || (predictor_ == 2 && bits_ >= 8), str("the predictor ", predictor_));
    check(compression_ == 1 || compression_ == 5 || compression_ == 8 || compression_ == 32946 || compression_ == 32773,
          str("the compression ", compression_));
    const int64_t needed = photometric_ == 2 ? 3 : photometric_ == 5 ? 4 : 1;
    check((photometric_ <= 3 || photometric_ == 5) && samples_ >= needed && (photometric_ != 3 || bits_ <= 8),
          str("photometric ", photometric_, " with ", samples_, " samples"));
    if (photometric_ == 3) {
      palette_ = values(kPalette);
      check(std::ssize(palette_) >= 3 << bits_, "a palette that is too small");
    }
    pieces(out);
    return out;
  }

 private:
  struct Field {
    unsigned type;
    size_t count, at;
  };
  static void check(bool fits, const std::string& what) {
    require(fits, Fault::Data, "a TIFF picture with ", what, ", which is not read: convert it to PNG");
  }
  size_t number(size_t at, size_t size) const {
    require(at + size <= bytes_.size() && at + size >= at, Fault::Data, "a truncated TIFF file");
    size_t value = 0;
    for (size_t i = 0; i < size; ++i)
      value |= size_t{static_cast<uint8_t>(bytes_[at + i])} << 8 * (little_ ? i : size - 1 - i);
    return value;
  }
  static size_t size_of(unsigned type) { return type == 3 ? 2 : type == 4 ? 4 : type == 1 ? 1 : 0; }
  void directory(size_t at) {
    const size_t count = number(at, 2);
    require(count <= kMostEntries, Fault::Data, "a damaged TIFF file");
    for (size_t i = 0; i < count; ++i) {
      const size_t entry = at + 2 + 12 * i;
      const auto type = static_cast<unsigned>(number(entry + 2, 2));
      const size_t many = number(entry + 4, 4), size = size_of(type);
      if (size == 0) continue;  // texts and fractions say nothing of the pixels
      fields_[static_cast<unsigned>(number(entry, 2))] = {type, many,
                                                          many * size <= 4 ? entry + 8 : number(entry + 8, 4)};
    }
  }
  std::vector<int64_t> values(unsigned tag) const {
    const auto found = fields_.find(tag);
    if (found == fields_.end()) return {};
    const Field& f = found->second;
    require(f.count <= kMostPieces, Fault::Data, "a damaged TIFF file");
    std::vector<int64_t> out;
    for (size_t i = 0; i < f.count; ++i)
      out.push_back(static_cast<int64_t>(number(f.at + i * size_of(f.type), size_of(f.type))));
    return out;
  }
  int64_t one(unsigned tag, int64_t otherwise) const {
    const auto all = values(tag);
    return all.empty() ? otherwise : all[0];
  }

  // Strips are tiles as wide as the picture.
  void pieces(Image& out) {
    const bool tiled = fields_.count(kTileWidth) > 0;
    const int64_t w = tiled ? one(kTileWidth, 0) : width_;
    const int64_t h = tiled ? one(kTileHeight, 0) : std::min(one(kRowsPerStrip, height_), height_);
    require(w > 0 && h > 0 && w <= limits_.side && h <= limits_.side && w <= limits_.pixels / h &&
                w * h * samples_ * bits_ / 8 <= int64_t{1} << 30,
            Fault::Data, "a damaged TIFF file");
    const auto offsets = values(tiled ? kTileOffsets : kStripOffsets), sizes = values(tiled ? kTileBytes : kStripBytes);
    const int64_t across = (width_ + w - 1) / w, down = (height_ + h - 1) / h;
    require(std::ssize(offsets) >= across * down && std::ssize(sizes) >= across * down, Fault::Data,
            "a truncated TIFF file");
    for (int64_t piece = 0; piece < across * down; ++piece) {
      const int64_t top = piece / across * h, left = piece % across * w;
      const int64_t rows = tiled ? h : std::min(h, height_ - top);
      std::string data = unpacked(static_cast<size_t>(offsets[static_cast<size_t>(piece)]),
                                  static_cast<size_t>(sizes[static_cast<size_t>(piece)]),
                                  static_cast<size_t>((w * samples_ * bits_ + 7) / 8 * rows));
      for (int64_t row = 0; row < std::min(rows, height_ - top); ++row)
        put_row(data, row, w, out, top + row, left, std::min(w, width_ - left));
    }
  }
  std::string unpacked(size_t at, size_t size, size_t wanted) const {
    require(at + size >= at && at + size <= bytes_.size(), Fault::Data, "a truncated TIFF file");
    const std::string_view in = bytes_.substr(at, size);
    std::string out = compression_ == 1       ? std::string(in.substr(0, wanted))
                      : compression_ == 5     ? unpacked_lzw(in, wanted)
                      : compression_ == 32773 ? unpacked_bits(in, wanted)
                                              : inflated(in, wanted);
    require(out.size() >= wanted, Fault::Data, "a truncated TIFF file");
    return out;
  }
  // The samples of a row of `count` pixels: the high byte of those of 16 bits, the small ones as they are.
  void put_row(std::string& data, int64_t row, int64_t count, Image& out, int64_t y, int64_t left, int64_t shown) {
    const int64_t stride = (count * samples_ * bits_ + 7) / 8;
    auto* line = reinterpret_cast<uint8_t*>(data.data()) + row * stride;
    line_.resize(static_cast<size_t>(count * samples_));
    std::array<unsigned, 8> sum{};
    for (int64_t i = 0; i < count * samples_; ++i) {
      unsigned value = 0;
      if (bits_ == 16)
        value = little_ ? line[2 * i] | line[2 * i + 1] << 8 : line[2 * i] << 8 | line[2 * i + 1];
      else
        value = line[i * bits_ / 8] >> (8 - bits_ - i * bits_ % 8) & ((1U << bits_) - 1);
      if (predictor_ == 2) value = sum[static_cast<size_t>(i % samples_)] += value;
      line_[static_cast<size_t>(i)] = static_cast<uint8_t>(bits_ == 16 ? value >> 8 & 255 : value);
    }
    for (int64_t x = 0; x < shown; ++x)
      put_pixel(&line_[static_cast<size_t>(x * samples_)], &out.rgb[static_cast<size_t>(3 * (y * width_ + left + x))]);
  }
  void put_pixel(const uint8_t* from, uint8_t* rgb) const {
    if (photometric_ == 3) {
      for (size_t c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>(palette_[from[0] + (c << bits_)] / 256);
      return;
    }
    if (photometric_ == 5) {
      const int black = 255 - from[3];
      for (size_t c = 0; c < 3; ++c) {  // rounded as Pillow does it
        const int ink = from[c] * black + 128;
        rgb[c] = static_cast<uint8_t>(std::clamp(black - (((ink >> 8) + ink) >> 8), 0, 255));
      }
      return;
    }
    const int64_t top = bits_ >= 8 ? 255 : (1 << bits_) - 1;
    for (size_t c = 0; c < 3; ++c) {
      const int64_t value = from[photometric_ == 2 ? c : 0] * 255 / top;
      rgb[c] = static_cast<uint8_t>(photometric_ == 0 ? 255 - value : value);
    }
  }

  std::string_view bytes_;
  const ImageLimits& limits_;
  bool little_ = true;
  std::map<unsigned, Field> fields_;
  int64_t width_ = 0, height_ = 0, samples_ = 1, bits_ = 1, compression_ = 1, predictor_ = 1, photometric_ = 1;
  std::vector<int64_t> palette_;
  std::vector<uint8_t> line_;
};

}  // namespace

Image decode_tiff(std::string_view bytes, const ImageLimits& limits) { return TiffReader(bytes, limits).read(); }

}  // namespace apus
