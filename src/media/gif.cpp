// SPDX-License-Identifier: Apache-2.0
// The first frame of a GIF.
#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "media/decoders.h"

namespace apus {

namespace {

class GifReader {
 public:
  GifReader(std::string_view bytes, const ImageLimits& limits) : bytes_(bytes), limits_(limits) {}

  Image read() {
    at_ = 6;
    const int64_t width = word(), height = word();
    const uint8_t flags = byte();
    at_ += 2;  // background and aspect: no program honours them
    if (flags & 0x80) read_palette(2 << (flags & 7));
    Image image = blank_image(width, height, limits_);
    for (;;) {
      const uint8_t kind = byte();
      require(kind != 0x3b, Fault::Data, "a GIF file without a picture");
      if (kind == 0x21) {
        extension();
      } else if (kind == 0x2c) {
        frame(image);
        return image;
      } else {
        fail(Fault::Data, "a damaged GIF file (an unknown block)");
      }
    }
  }

 private:
  uint8_t byte() {
    require(at_ < bytes_.size(), Fault::Data, "a truncated GIF file");
    return static_cast<uint8_t>(bytes_[at_++]);
  }
  int64_t word() {
    const int64_t low = byte();
    return low | int64_t{byte()} << 8;
  }
  void read_palette(int colors) {
    palette_.fill({});
    for (int i = 0; i < colors; ++i)
      for (auto& part : palette_[static_cast<size_t>(i)]) part = byte();
    has_palette_ = true;
  }
  void extension() {
    const uint8_t label = byte();
    for (uint8_t size = byte(); size > 0; size = byte()) {
      const size_t begin = at_;
      for (int i = 0; i < size; ++i) byte();
      if (label == 0xf9 && size >= 4 && bytes_[begin] & 1) transparent_ = static_cast<uint8_t>(bytes_[begin + 3]);
    }
  }
  std::array<uint8_t, 3> color(uint8_t index) const {
    return has_palette_ ? palette_[index] : std::array<uint8_t, 3>{index, index, index};
  }

  void frame(Image& image) {
    const int64_t left = word(), top = word(), width = word(), height = word();
    const uint8_t flags = byte();
    if (flags & 0x80) read_palette(2 << (flags & 7));
    require(left + width <= image.width && top + height <= image.height, Fault::Data,
            "a damaged GIF file (its first frame is larger than its canvas)");
    const auto back = color(transparent_.value_or(0));
    for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = back[i % 3];
    const std::vector<uint8_t> indices = unpacked(width * height);
    // Where the file's rows belong: in order, or first every eighth, then those between.
    std::vector<int64_t> rows;
    const auto every = [&](int64_t from, int64_t step) {
      for (int64_t y = from; y < height; y += step) rows.push_back(y);
    };
    if (flags & 0x40)
      every(0, 8), every(4, 8), every(2, 4), every(1, 2);
    else
      every(0, 1);
    size_t next = 0;
    for (const int64_t y : rows)
      for (int64_t x = 0; x < width; ++x) {
        const auto rgb = color(indices[next++]);
        std::copy(rgb.begin(), rgb.end(), image.rgb.begin() + ((top + y) * image.width + left + x) * 3);
      }
  }

  // Lempel-Ziv-Welch codes of growing width, lowest bits first, in blocks of up to 255 bytes.
  std::vector<uint8_t> unpacked(int64_t count) {
    const int first_width = byte();
    require(first_width >= 1 && first_width <= 11, Fault::Data, "a damaged GIF file (codes of ", first_width, " bits)");
    const int clear = 1 << first_width, end = clear + 1;
    std::vector<uint8_t> out;
    out.reserve(static_cast<size_t>(count));
    std::array<int16_t, 4096> before{};
    std::array<uint8_t, 4096> last{}, stack{};
    int next = end + 1, width = first_width + 1, previous = -1;
    uint8_t first = 0;
    uint32_t bits = 0;
    int held = 0, block = 0;
    while (static_cast<int64_t>(out.size()) < count) {
      while (held < width) {
        if (block == 0) {
          block = byte();
          require(block > 0, Fault::Data, "a truncated GIF file (rows are missing)");
        }
        bits |= uint32_t{byte()} << held;
        held += 8, --block;
      }
      const int code = static_cast<int>(bits & ((1u << width) - 1));
      bits >>= width, held -= width;
      require(code != end, Fault::Data, "a truncated GIF file (rows are missing)");
      if (code == clear) {
        next = end + 1, width = first_width + 1, previous = -1;
        continue;
      }
      require(previous < 0 ? code < clear : code <= next, Fault::Data, "a damaged GIF file (an impossible code)");
      size_t depth = 0;
      int at = code;
      if (previous >= 0 && code == next) stack[depth++] = first, at = previous;
      while (at >= clear) {
        require(depth + 1 < stack.size() && at != end, Fault::Data, "a damaged GIF file (an impossible code)");
        stack[depth++] = last[static_cast<size_t>(at)];
        at = before[static_cast<size_t>(at)];
      }
      first = static_cast<uint8_t>(at);
      stack[depth++] = first;
      while (depth > 0 && static_cast<int64_t>(out.size()) < count) out.push_back(stack[--depth]);
      if (previous >= 0 && next < 4096) {
        before[static_cast<size_t>(next)] = static_cast<int16_t>(previous);
        last[static_cast<size_t>(next)] = first;
        ++next;
        if (next == 1 << width && width < 12) ++width;
      }
      previous = code;
    }
    return out;
  }

  std::string_view bytes_;
  const ImageLimits& limits_;
  size_t at_ = 0;
  std::array<std::array<uint8_t, 3>, 256> palette_{};
  bool has_palette_ = false;
  std::optional<uint8_t> transparent_;
};

}  // namespace

Image decode_gif(std::string_view bytes, const ImageLimits& limits) { return GifReader(bytes, limits).read(); }

}  // namespace apus
