// SPDX-License-Identifier: Apache-2.0
// BMP: palettes of 1, 4 and 8 bits, also run-length coded, and 16, 24 and 32 bits with or without masks.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "media/decoders.h"

namespace apus {

namespace {

class BmpReader {
 public:
  BmpReader(std::string_view bytes, const ImageLimits& limits) : bytes_(bytes), limits_(limits) {}

  Image read() {
    const auto begin = number(10, 4), header = number(14, 4);
    const bool old = header == 12;
    require(old || (header >= 40 && header <= 124), Fault::Data, "a BMP file with a header of ", header, " bytes");
    const int64_t width = old ? number(18, 2) : signed_number(18);
    const int64_t high = old ? number(20, 2) : signed_number(22);
    const int64_t bits = number(old ? 24 : 28, 2), packing = old ? 0 : number(30, 4);
    top_down_ = high < 0;
    Image image = blank_image(width, top_down_ ? -high : high, limits_);
    begin_ = begin;
    if (bits <= 8) {
      require(bits == 1 || bits == 4 || bits == 8, Fault::Data, "a BMP file of ", bits, " bits a pixel");
      read_palette(14 + header, old ? 3 : 4, int64_t{1} << bits, old ? 0 : number(46, 4));
      if (packing == 0)
        indexed(image, bits);
      else if ((packing == 1 && bits == 8) || (packing == 2 && bits == 4))
        runs(image, bits);
      else
        fail(Fault::Data, "a BMP file packed in a way (", packing, ") that is not known");
      return image;
    }
    require(bits == 16 || bits == 24 || bits == 32, Fault::Data, "a BMP file of ", bits, " bits a pixel");
    require(packing == 0 || ((packing == 3 || packing == 6) && bits != 24), Fault::Data, "a BMP file packed in a way (",
            packing, ") that is not known");
    std::array<uint32_t, 3> masks{0xff0000, 0xff00, 0xff};
    if (bits == 16) masks = {0x7c00, 0x3e0, 0x1f};
    if (packing != 0)
      for (int64_t c = 0; c < 3; ++c) masks[static_cast<size_t>(c)] = static_cast<uint32_t>(number(54 + 4 * c, 4));
    masked(image, bits / 8, masks);
    return image;
  }

 private:
  uint8_t byte(int64_t at) const {
    require(at >= 0 && at < static_cast<int64_t>(bytes_.size()), Fault::Data, "a truncated BMP file");
    return static_cast<uint8_t>(bytes_[static_cast<size_t>(at)]);
  }
  int64_t number(int64_t at, int count) const {
    int64_t value = 0;
    for (int i = 0; i < count; ++i) value |= int64_t{byte(at + i)} << (8 * i);
    return value;
  }
  int64_t signed_number(int64_t at) const { return static_cast<int32_t>(static_cast<uint32_t>(number(at, 4))); }

  void read_palette(int64_t at, int64_t entry, int64_t most, int64_t said) {
    const int64_t colors = said > 0 ? std::min(said, most) : most;
    for (int64_t i = 0; i < colors; ++i) {
      if (at + (i + 1) * entry > begin_) break;  // files whose palette is shorter than they say
      for (int c = 0; c < 3; ++c)
        palette_[static_cast<size_t>(i)][static_cast<size_t>(c)] = byte(at + i * entry + 2 - c);
    }
  }
  uint8_t* row(Image& image, int64_t y) const {  // files begin with the lowest row
    return image.rgb.data() + (top_down_ ? y : image.height - 1 - y) * image.width * 3;
  }
  void put(uint8_t* to, uint8_t index) const { std::copy_n(palette_[index].begin(), 3, to); }

  void indexed(Image& image, int64_t bits) const {
    const int64_t stride = (image.width * bits + 31) / 32 * 4, in_byte = 8 / bits;
    for (int64_t y = 0; y < image.height; ++y)
      for (int64_t x = 0; x < image.width; ++x) {
        const uint8_t held = byte(begin_ + y * stride + x / in_byte);
        const int64_t shift = 8 - bits * (x % in_byte + 1);
        put(row(image, y) + x * 3, static_cast<uint8_t>(held >> shift & ((1 << bits) - 1)));
      }
  }

  // Pairs (count, index); after a zero: 0 ends the row, 1 the picture, 2 jumps, more are single pixels.
  void runs(Image& image, int64_t bits) const {
    for (int64_t y = 0; y < image.height; ++y)
      for (int64_t x = 0; x < image.width; ++x) put(row(image, y) + x * 3, 0);
    int64_t x = 0, y = 0, at = begin_;
    const auto dot = [&](uint8_t index) {
      if (x < image.width && y < image.height) put(row(image, y) + x * 3, index);
      ++x;
    };
    const auto part = [&](uint8_t held, int64_t i) {
      return bits == 8 ? held : static_cast<uint8_t>(i % 2 == 0 ? held >> 4 : held & 15);
    };
    while (y < image.height) {
      const int64_t count = byte(at), value = byte(at + 1);
      at += 2;
      if (count > 0) {
        for (int64_t i = 0; i < count; ++i) dot(part(static_cast<uint8_t>(value), i));
      } else if (value == 0) {
        x = 0, ++y;
      } else if (value == 1) {
        return;
      } else if (value == 2) {
        x += byte(at), y += byte(at + 1), at += 2;
      } else {
        for (int64_t i = 0; i < value; ++i) dot(part(byte(at + (bits == 8 ? i : i / 2)), i));
        const int64_t used = bits == 8 ? value : (value + 1) / 2;
        at += used + used % 2;
      }
    }
  }

  void masked(Image& image, int64_t pixel_bytes, const std::array<uint32_t, 3>& masks) const {
    const int64_t stride = (image.width * pixel_bytes + 3) / 4 * 4;
    byte(begin_ + (image.height - 1) * stride + image.width * pixel_bytes - 1);  // all of it is there
    for (const uint32_t mask : masks) require(mask != 0, Fault::Data, "a BMP file with a mask of no bits");
    for (int64_t y = 0; y < image.height; ++y) {
      uint8_t* to = row(image, y);
      for (int64_t x = 0; x < image.width; ++x)
        for (const uint32_t mask : masks) {
          const auto held =
              static_cast<uint32_t>(number(begin_ + y * stride + x * pixel_bytes, static_cast<int>(pixel_bytes)));
          const int shift = __builtin_ctz(mask);
          *to++ = static_cast<uint8_t>(uint64_t{(held & mask) >> shift} * 255 / (mask >> shift));
        }
    }
  }

  std::string_view bytes_;
  const ImageLimits& limits_;
  int64_t begin_ = 0;
  bool top_down_ = false;
  std::array<std::array<uint8_t, 3>, 256> palette_{};
};

}  // namespace

Image decode_bmp(std::string_view bytes, const ImageLimits& limits) { return BmpReader(bytes, limits).read(); }

}  // namespace apus
