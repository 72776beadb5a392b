// SPDX-License-Identifier: Apache-2.0
#include "media/resize.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/vectors.h"

namespace apus {

namespace {

// Fractional bits of weights. Torch keeps weights in 16 bits: as many as leave room for the largest of them.
enum class Bits { Pillow, Torch };

double sinc(double x) { return x == 0 ? 1 : std::sin(x * M_PI) / (x * M_PI); }

// How far a filter reaches.
double reach_of(Filter filter) { return filter == Filter::Bilinear ? 1 : filter == Filter::Bicubic ? 2 : 3; }

double filter_at(Filter filter, double x) {
  x = std::abs(x);
  if (filter == Filter::Lanczos) return x < 3 ? sinc(x) * sinc(x / 3) : 0;
  if (filter == Filter::Bilinear) return x < 1 ? 1 - x : 0;
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

// One axis: output i is the sum of weights[i * taps + k] * input[begin[i] + k] over k < count[i].
struct Axis {
  int64_t taps = 0;
  std::vector<int64_t> begin, count;
  std::vector<double> weights;
};

Axis axis_of(int64_t from, int64_t to, Filter filter) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), wide = std::max(scale, 1.0);
  const double support = reach_of(filter) * wide, narrow = 1.0 / wide;
  Axis axis;
  axis.taps = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  axis.weights.resize(static_cast<size_t>(to * axis.taps));
  for (int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int64_t begin = std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
    const int64_t end = std::min(from, static_cast<int64_t>(center + support + 0.5));
    double* weights = &axis.weights[static_cast<size_t>(i * axis.taps)];
    double sum = 0;
    for (int64_t k = begin; k < end; ++k) {
      weights[k - begin] = filter_at(filter, (static_cast<double>(k) - center + 0.5) * narrow);
      sum += weights[k - begin];
    }
    for (int64_t k = begin; k < end && sum != 0; ++k) weights[k - begin] /= sum;
    axis.begin.push_back(begin);
    axis.count.push_back(end - begin);
  }
  return axis;
}

int fraction_bits(const std::vector<double>& weights, Bits bits) {
  constexpr int kMost = 22;
  if (bits == Bits::Pillow) return kMost;
  const double most = *std::max_element(weights.begin(), weights.end());
  int n = 0;
  while (n < kMost && static_cast<int>(0.5 + most * (1 << (n + 1))) < 1 << 15) ++n;
  return n;
}

std::vector<int32_t> fixed_point(const std::vector<double>& weights, int bits) {
  std::vector<int32_t> out;
  out.reserve(weights.size());
  for (const double w : weights) out.push_back(static_cast<int32_t>((w < 0 ? -0.5 : 0.5) + w * (1 << bits)));
  return out;
}

uint8_t to_byte(int32_t sum, int bits) { return static_cast<uint8_t>(std::clamp(sum >> bits, 0, 255)); }

Image columns_fixed(const Image& in, int64_t width, Filter filter, Bits kind) {
  const Axis axis = axis_of(in.width, width, filter);
  const int bits = fraction_bits(axis.weights, kind);
  const std::vector<int32_t> weights = fixed_point(axis.weights, bits);
  Image out{width, in.height, std::vector<uint8_t>(static_cast<size_t>(width * in.height * 3))};
  for (int64_t y = 0; y < in.height; ++y) {
    const uint8_t* row = in.rgb.data() + y * in.width * 3;
    uint8_t* to = out.rgb.data() + y * width * 3;
    for (int64_t x = 0; x < width; ++x, to += 3) {
      const uint8_t* from = row + axis.begin[static_cast<size_t>(x)] * 3;
      const int32_t* w = &weights[static_cast<size_t>(x * axis.taps)];
      int32_t r = 1 << (bits - 1), g = r, b = r;
      for (int64_t k = axis.count[static_cast<size_t>(x)]; k > 0; --k, from += 3, ++w)
        r += from[0] * *w, g += from[1] * *w, b += from[2] * *w;
      to[0] = to_byte(r, bits), to[1] = to_byte(g, bits), to[2] = to_byte(b, bits);
    }
  }
  return out;
}

Image rows_fixed(const Image& in, int64_t height, Filter filter, Bits kind) {
  const Axis axis = axis_of(in.height, height, filter);
  const int bits = fraction_bits(axis.weights, kind);
  const std::vector<int32_t> weights = fixed_point(axis.weights, bits);
  const size_t line = static_cast<size_t>(in.width * 3);
  Image out{in.width, height, std::vector<uint8_t>(line * static_cast<size_t>(height))};
  std::vector<int32_t> sums(line);
  for (int64_t y = 0; y < height; ++y) {
    std::fill(sums.begin(), sums.end(), 1 << (bits - 1));
    for (int64_t k = 0; k < axis.count[static_cast<size_t>(y)]; ++k) {
      const uint8_t* from = in.rgb.data() + static_cast<size_t>(axis.begin[static_cast<size_t>(y)] + k) * line;
      const int32_t w = weights[static_cast<size_t>(y * axis.taps + k)];
      vectors::add_scaled({from, line}, w, sums.data());
    }
    vectors::bytes_of(sums, bits, out.rgb.data() + static_cast<size_t>(y) * line);
  }
  return out;
}

void check_size(const Image& image, int64_t width, int64_t height) {
  require(image.width > 0 && image.height > 0 && width > 0 && height > 0, Fault::Data, "an image of ", image.width,
          " x ", image.height, " pixels cannot become one of ", width, " x ", height);
}

Image resized_fixed(const Image& image, int64_t width, int64_t height, Filter filter, Bits bits) {
  check_size(image, width, height);
  if (image.width == width) return image.height == height ? image : rows_fixed(image, height, filter, bits);
  const Image wide = columns_fixed(image, width, filter, bits);
  return wide.height == height ? wide : rows_fixed(wide, height, filter, bits);
}

}  // namespace

Image resized(const Image& image, int64_t width, int64_t height, Filter filter) {
  return resized_fixed(image, width, height, filter, Bits::Pillow);
}

Image resized_as_torch(const Image& image, int64_t width, int64_t height, Filter filter) {
  return resized_fixed(image, width, height, filter, Bits::Torch);
}

std::vector<float> floats_resized(const Image& image, int64_t width, int64_t height, Filter filter) {
  check_size(image, width, height);
  if (image.width == width && image.height == height) return {image.rgb.begin(), image.rgb.end()};
  const Axis across = axis_of(image.width, width, filter), down = axis_of(image.height, height, filter);
  std::vector<float> wide(static_cast<size_t>(width * image.height * 3));
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        const uint8_t* from = image.rgb.data() + (y * image.width + across.begin[static_cast<size_t>(x)]) * 3 + c;
        float sum = 0;
        for (int64_t k = 0; k < across.count[static_cast<size_t>(x)]; ++k)
          sum += static_cast<float>(from[k * 3]) *
                 static_cast<float>(across.weights[static_cast<size_t>(x * across.taps + k)]);
        wide[static_cast<size_t>((y * width + x) * 3 + c)] = sum;
      }
  const int64_t line = width * 3;
  std::vector<float> out(static_cast<size_t>(line * height), 0.f);
  for (int64_t y = 0; y < height; ++y) {
    float* sums = out.data() + y * line;
    for (int64_t k = 0; k < down.count[static_cast<size_t>(y)]; ++k) {
      const float* from = wide.data() + (down.begin[static_cast<size_t>(y)] + k) * line;
      const auto w = static_cast<float>(down.weights[static_cast<size_t>(y * down.taps + k)]);
      for (int64_t x = 0; x < line; ++x) sums[x] += from[x] * w;
    }
  }
  return out;
}

Image resized_in_floats(const Image& image, int64_t width, int64_t height, Filter filter) {
  if (image.width == width && image.height == height) return image;
  Image out{width, height, {}};
  for (const float level : floats_resized(image, width, height, filter))
    out.rgb.push_back(static_cast<uint8_t>(std::clamp(std::nearbyint(level), 0.f, 255.f)));
  return out;
}

namespace {
// One axis of resized_between: the two neighbours of each place, and the share of the second.
struct Between {
  int64_t first = 0, second = 0;
  float share = 0;
};
std::vector<Between> between(int64_t from, int64_t to) {
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  std::vector<Between> out;
  for (int64_t i = 0; i < to; ++i) {
    const float at = std::max(0.f, scale * (static_cast<float>(i) + 0.5f) - 0.5f);
    const int64_t first = std::min(static_cast<int64_t>(at), from - 1);
    out.push_back({first, std::min(first + 1, from - 1), std::clamp(at - static_cast<float>(first), 0.f, 1.f)});
  }
  return out;
}
}  // namespace

Image resized_between(const Image& image, int64_t width, int64_t height) {
  if (image.width == width && image.height == height) return image;
  const std::vector<Between> across = between(image.width, width), down = between(image.height, height);
  Image out{width, height, {}};
  out.rgb.reserve(static_cast<size_t>(width * height * 3));
  for (const Between& y : down)
    for (const Between& x : across)
      for (int64_t c = 0; c < 3; ++c) {
        const auto level = [&](int64_t line, int64_t column) {
          return static_cast<float>(image.rgb[static_cast<size_t>((line * image.width + column) * 3 + c)]);
        };
        // Sums and products round where torch's do.
        const auto of_line = [&](int64_t line) {
          return std::fma(1 - x.share, level(line, x.first), x.share * level(line, x.second));
        };
        const float value = std::fma(1 - y.share, of_line(y.first), y.share * of_line(y.second));
        out.rgb.push_back(static_cast<uint8_t>(std::clamp(std::nearbyint(value), 0.f, 255.f)));
      }
  return out;
}

namespace {
// The four numbers around a place and their shares, edges on edges; as torch's bicubic without antialias has it.
struct Cubic {
  std::array<int64_t, 4> from;
  std::array<double, 4> share;
};
Cubic cubic_at(int64_t place, int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double at = scale * (static_cast<double>(place) + 0.5) - 0.5, whole = std::floor(at), t = at - whole;
  constexpr double a = -0.75;
  const auto near = [](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  Cubic out{{}, {far(t + 1), near(t), near(1 - t), far(2 - t)}};
  for (int64_t k = 0; k < 4; ++k)
    out.from[static_cast<size_t>(k)] = std::clamp<int64_t>(static_cast<int64_t>(whole) - 1 + k, 0, from - 1);
  return out;
}

}  // namespace

std::vector<float> planes_in_square(const std::vector<float>& planes, int64_t height, int64_t width, int64_t side) {
  std::vector<float> out(static_cast<size_t>(3 * side * side));
  std::vector<Cubic> across;
  for (int64_t x = 0; x < side; ++x) across.push_back(cubic_at(x, width, side));
  for (int64_t y = 0; y < side; ++y) {
    const Cubic down = cubic_at(y, height, side);
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t x = 0; x < side; ++x) {
        double sum = 0;
        for (size_t j = 0; j < 4; ++j) {
          const float* row = planes.data() + (c * height + down.from[j]) * width;
          double line = 0;
          const Cubic& at = across[static_cast<size_t>(x)];
          for (size_t i = 0; i < 4; ++i) line += at.share[i] * row[at.from[i]];
          sum += down.share[j] * line;
        }
        out[static_cast<size_t>((c * side + y) * side + x)] = static_cast<float>(sum);
      }
  }
  return out;
}

Image cropped(const Image& image, int64_t left, int64_t top, int64_t width, int64_t height) {
  require(left >= 0 && top >= 0 && left + width <= image.width && top + height <= image.height, Fault::Bug,
          "a part that reaches out of its image");
  Image out{width, height, {}};
  out.rgb.reserve(static_cast<size_t>(width * height * 3));
  for (int64_t y = 0; y < height; ++y) {
    const auto from = image.rgb.begin() + ((top + y) * image.width + left) * 3;
    out.rgb.insert(out.rgb.end(), from, from + width * 3);
  }
  return out;
}

void add_tiles(const Image& whole, int64_t width, int64_t height, std::vector<Image>& out) {
  for (int64_t y = 0; y < whole.height; y += height)
    for (int64_t x = 0; x < whole.width; x += width) out.push_back(cropped(whole, x, y, width, height));
}

}  // namespace apus
