// SPDX-License-Identifier: Apache-2.0
// Numbers into ggml's blocks, by the rules of its reference quantisers: every sum runs through the block in order in
// f32, so the bytes are equal. The formats ending in _K search: each sub-block tries several steps between its levels
// and keeps the one whose weighted squared error is least.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "gguf/ggml_blocks.h"
#include "gguf/ggml_type.h"

namespace apus {

namespace ggml {
namespace {

// The nearest whole number, ties to even; |x| < 2^22.
int nearest(float x) {
  const auto bits = std::bit_cast<int32_t>(x + 12582912.0F);
  return (bits & 0x007FFFFF) - 0x00400000;
}

float signed_largest(const float* x, int64_t n) {  // the first of those
  float size = 0, found = 0;
  for (int64_t i = 0; i < n; ++i)
    if (std::fabs(x[i]) > size) size = std::fabs(x[i]), found = x[i];
  return found;
}

float inverse(float d) { return d != 0 ? 1 / d : 0; }

struct Extent {
  float least, most;
};
Extent extent(const float* x) {
  const auto [least, most] = std::minmax_element(x, x + kSmall);
  return {*least, *most};
}

template <class Level>
void put_nibbles(std::byte* q, const float* x, const Level& level) {
  for (int j = 0; j < 16; ++j) put(q, j, level(x[j]) | level(x[j + 16]) << 4);
}

void put_five_bits(std::byte* high, std::byte* q, const std::array<int, kSmall>& level) {
  uint32_t bits = 0;
  for (int j = 0; j < 16; ++j) put(q, j, (level[j] & 15) | (level[j + 16] & 15) << 4);
  for (int j = 0; j < kSmall; ++j) bits |= static_cast<uint32_t>(level[j] >> 4) << j;
  std::memcpy(high, &bits, sizeof bits);
}

void write_q4_0(const float* x, std::byte* b) {
  const float d = signed_largest(x, kSmall) / -8, id = inverse(d);
  put_half(b, d);
  put_nibbles(b + 2, x, [&](float v) { return std::min(15, static_cast<int>(v * id + 8.5F)); });
}

void write_q4_1(const float* x, std::byte* b) {
  const auto [least, most] = extent(x);
  const float d = (most - least) / 15, id = inverse(d), m = least;
  put_half(b, d), put_half(b + 2, m);
  put_nibbles(b + 4, x, [&](float v) { return std::min(15, static_cast<int>((v - m) * id + 0.5F)); });
}

void write_q5_0(const float* x, std::byte* b) {
  const float d = signed_largest(x, kSmall) / -16, id = inverse(d);
  std::array<int, kSmall> level;
  for (int j = 0; j < kSmall; ++j) level[j] = std::min(31, static_cast<int>(x[j] * id + 16.5F));
  put_half(b, d);
  put_five_bits(b + 2, b + 6, level);
}

void write_q5_1(const float* x, std::byte* b) {
  const auto [least, most] = extent(x);
  const float d = (most - least) / 31, id = inverse(d);
  std::array<int, kSmall> level;
  for (int j = 0; j < kSmall; ++j) level[j] = std::min(31, static_cast<int>((x[j] - least) * id + 0.5F));
  put_half(b, d), put_half(b + 2, least);
  put_five_bits(b + 4, b + 8, level);
}

void write_q8_0(const float* x, std::byte* b) {
  const float d = std::fabs(signed_largest(x, kSmall)) / 127, id = inverse(d);
  put_half(b, d);
  for (int j = 0; j < kSmall; ++j) put(b, 2 + j, static_cast<int>(std::round(x[j] * id)));
}

void write_mxfp4(const float* x, std::byte* b) {
  const float most = std::fabs(signed_largest(x, kSmall));
  const int exponent = most > 0 ? std::clamp(static_cast<int>(std::floor(std::log2(most))) - 2 + 127, 0, 254) : 0;
  const float d = half_e8m0(static_cast<uint8_t>(exponent));
  put(b, 0, exponent);
  put_nibbles(b + 1, x, [&](float v) {
    int best = 0;
    float least = std::fabs(v);
    for (int i = 1; i < 16; ++i)
      if (const float error = std::fabs(static_cast<float>(kTwiceE2m1[i]) * d - v); error < least)
        best = i, least = error;
    return best;
  });
}

// ---- Q4_K and Q5_K: levels of `scale * L - minimum` for 32 numbers

struct KForm {
  int most;     // the largest level
  float first;  // the first try's change of the number of levels
  int tries;    // each 0.1 further
};

struct SubLevels {
  float scale, minimum;
  std::array<int, kSmall> level{};
};

struct KSearch {
  const float* x;
  const KForm& form;
  std::array<float, kSmall> weight;
  float sum_w = 0, sum_x = 0;

  KSearch(const float* x, const KForm& form) : x(x), form(form) {
    float squares = 0;
    for (int i = 0; i < kSmall; ++i) squares += x[i] * x[i];
    const float average = std::sqrt(squares / kSmall);
    for (int i = 0; i < kSmall; ++i) {
      weight[i] = average + std::fabs(x[i]);
      sum_w += weight[i];
      sum_x += weight[i] * x[i];
    }
  }
  int level(float value, float per_level, float least) const {
    return std::clamp(nearest(per_level * (value - least)), 0, form.most);
  }
  float error(float scale, float least, const std::array<int, kSmall>& level) const {
    float sum = 0;
    for (int i = 0; i < kSmall; ++i) {
      const float difference = scale * static_cast<float>(level[i]) + least - x[i];
      sum += weight[i] * (difference * difference);
    }
    return sum;
  }

  SubLevels best() const {
    auto [least, most] = extent(x);
    least = std::min(least, 0.0F);
    if (most == least) return {0, -least};
    SubLevels found{1 / (static_cast<float>(form.most) / (most - least)), 0};
    for (int i = 0; i < kSmall; ++i)
      found.level[i] = level(x[i], static_cast<float>(form.most) / (most - least), least);
    float least_error = error(found.scale, least, found.level);
    for (int step = 0; step <= form.tries; ++step) {
      const float per_level =
          (form.first + 0.1F * static_cast<float>(step) + static_cast<float>(form.most)) / (most - least);
      const auto [scale, minimum, levels, possible] = fitted(per_level, least);
      if (!possible) continue;
      if (const float e = error(scale, minimum, levels); e < least_error)
        found.level = levels, found.scale = scale, least = minimum, least_error = e;
    }
    found.minimum = -least;
    return found;
  }

 private:
  struct Fit {
    float scale, least;
    std::array<int, kSmall> level;
    bool possible;
  };
  // Scale and least number of least squares for the levels that this step gives.
  Fit fitted(float per_level, float least) const {
    Fit fit{0, 0, {}, false};
    float sum_l = 0, sum_ll = 0, sum_xl = 0;
    for (int i = 0; i < kSmall; ++i) {
      const int l = fit.level[i] = level(x[i], per_level, least);
      const float weighted = weight[i] * static_cast<float>(l);
      sum_l += weighted;
      sum_ll += weighted * static_cast<float>(l);
      sum_xl += weighted * x[i];
    }
    const float determinant = sum_w * sum_ll - sum_l * sum_l;
    if (!(determinant > 0)) return fit;
    fit.possible = true;
    fit.scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    fit.least = (sum_ll * sum_x - sum_l * sum_xl) / determinant;
    if (fit.least > 0) fit.least = 0, fit.scale = sum_xl / sum_ll;
    return fit;
  }
};

void put_sub_blocks(std::byte* b, const std::array<int, 8>& scale, const std::array<int, 8>& minimum) {
  for (int j = 0; j < 4; ++j) {
    put(b, j, scale[j] | (scale[j + 4] >> 4) << 6);
    put(b, j + 4, minimum[j] | (minimum[j + 4] >> 4) << 6);
    put(b, j + 8, (scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
  }
}

// The levels of a super-block; its scales go to b.
std::array<int, kSuper> search_k(const float* x, const KForm& form, std::byte* b) {
  std::array<int, kSuper> level;
  std::array<float, 8> scales, minima;
  float most_scale = 0, most_minimum = 0;
  for (int j = 0; j < 8; ++j) {
    const SubLevels found = KSearch(x + 32 * j, form).best();
    std::copy(found.level.begin(), found.level.end(), level.begin() + 32 * j);
    scales[j] = found.scale, minima[j] = found.minimum;
    most_scale = std::max(most_scale, found.scale), most_minimum = std::max(most_minimum, found.minimum);
  }
  const float to_scale = most_scale > 0 ? 63 / most_scale : 0, to_minimum = most_minimum > 0 ? 63 / most_minimum : 0;
  std::array<int, 8> scale, minimum;
  for (int j = 0; j < 8; ++j) {
    scale[j] = std::min(63, nearest(to_scale * scales[j]) & 255);
    minimum[j] = std::min(63, nearest(to_minimum * minima[j]) & 255);
  }
  const float d = put_half(b, most_scale / 63), dmin = put_half(b + 2, most_minimum / 63);
  put_sub_blocks(b + 4, scale, minimum);
  for (int j = 0; j < 8; ++j) {
    const float step = d * static_cast<float>(scale[j]), least = dmin * static_cast<float>(minimum[j]);
    if (step == 0) continue;
    for (int l = 0; l < 32; ++l) level[32 * j + l] = std::clamp(nearest((x[32 * j + l] + least) / step), 0, form.most);
  }
  return level;
}

void put_k_nibbles(std::byte* q, const std::array<int, kSuper>& level) {
  for (int a = 0; a < 4; ++a)
    for (int l = 0; l < 32; ++l) put(q, 32 * a + l, (level[64 * a + l] & 15) | (level[64 * a + 32 + l] & 15) << 4);
}

void write_q4_k(const float* x, std::byte* b) { put_k_nibbles(b + 16, search_k(x, {15, -1, 20}, b)); }

void write_q5_k(const float* x, std::byte* b) {
  const auto level = search_k(x, {31, -0.5F, 15}, b);
  for (int l = 0; l < 32; ++l) {
    int high = 0;
    for (int j = 0; j < 8; ++j) high |= (level[32 * j + l] >> 4) << j;
    put(b, 16 + l, high);
  }
  put_k_nibbles(b + 48, level);
}

// ---- Q6_K: levels from -32 to 31 of `scale * L` for 16 numbers

constexpr float kNothing = 1e-15F;  // numbers below it are zero

float fit_six_bits(const float* x, int* level) {
  const float most = signed_largest(x, 16);
  std::fill(level, level + 16, -32);
  if (std::fabs(most) < kNothing) return 0;
  std::array<int, 16> tried;
  float sum_xl = 0, sum_ll = 0;
  const auto attempt = [&](float per_level) {
    sum_xl = sum_ll = 0;
    for (int i = 0; i < 16; ++i) {
      const int l = tried[static_cast<size_t>(i)] = std::clamp(nearest(per_level * x[i]), -32, 31);
      const float w = x[i] * x[i], number = static_cast<float>(l);
      sum_xl += w * x[i] * number;
      sum_ll += w * number * number;
    }
  };
  attempt(-32 / most);
  std::copy(tried.begin(), tried.end(), level);
  float scale = sum_ll != 0 ? sum_xl / sum_ll : 0, best = scale * sum_xl;
  for (int k = -9; k <= 9; ++k) {
    if (k == 0) continue;
    attempt(-(32 + 0.1F * static_cast<float>(k)) / most);
    if (!(sum_ll > 0) || !(sum_xl * sum_xl > best * sum_ll)) continue;
    std::copy(tried.begin(), tried.end(), level);
    scale = sum_xl / sum_ll, best = scale * sum_xl;
  }
  return scale;
}

void write_q6_k(const float* x, std::byte* b) {
  std::array<int, kSuper> level;
  std::array<float, 16> scales;
  for (int j = 0; j < 16; ++j) scales[static_cast<size_t>(j)] = fit_six_bits(x + 16 * j, level.data() + 16 * j);
  const float most = signed_largest(scales.data(), 16);
  if (std::fabs(most) < kNothing) return void(std::memset(b, 0, 210));
  const float to_scale = -128 / most, d = put_half(b + 208, 1 / to_scale);
  for (int j = 0; j < 16; ++j) {
    const int scale = std::min(127, nearest(to_scale * scales[static_cast<size_t>(j)]));
    put(b, 192 + j, scale);
    const float step = d * static_cast<float>(static_cast<int8_t>(scale));
    if (step == 0) continue;
    for (int i = 16 * j; i < 16 * j + 16; ++i)
      level[static_cast<size_t>(i)] = std::clamp(nearest(x[i] / step), -32, 31);
  }
  for (int a = 0; a < 2; ++a)
    for (int l = 0; l < 32; ++l) {
      const auto at = [&](int s) { return level[static_cast<size_t>(128 * a + 32 * s + l)] + 32; };
      put(b, 64 * a + l, (at(0) & 15) | (at(2) & 15) << 4);
      put(b, 64 * a + 32 + l, (at(1) & 15) | (at(3) & 15) << 4);
      put(b, 128 + 32 * a + l, at(0) >> 4 | (at(1) >> 4) << 2 | (at(2) >> 4) << 4 | (at(3) >> 4) << 6);
    }
}

template <class Convert>
void write_halves(const float* x, std::byte* out, int64_t count, const Convert& convert) {
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = convert(x[i]);
    std::memcpy(out + 2 * i, &bits, sizeof bits);
  }
}

void (*block_writer(GgmlType type))(const float*, std::byte*) {
  switch (type) {
    case GgmlType::Q4_0:
      return write_q4_0;
    case GgmlType::Q4_1:
      return write_q4_1;
    case GgmlType::Q5_0:
      return write_q5_0;
    case GgmlType::Q5_1:
      return write_q5_1;
    case GgmlType::Q8_0:
      return write_q8_0;
    case GgmlType::Q4_K:
      return write_q4_k;
    case GgmlType::Q5_K:
      return write_q5_k;
    case GgmlType::Q6_K:
      return write_q6_k;
    case GgmlType::MXFP4:
      return write_mxfp4;
    default:
      fail(Fault::Bug, "blocks of the ggml type ", ggml_type_name(static_cast<uint32_t>(type)), " are not written");
  }
}

}  // namespace
}  // namespace ggml

void ggml_write(GgmlType type, const float* numbers, std::byte* blocks, int64_t count) {
  const GgmlForm& form = ggml_form(type);
  require(count % form.block == 0, Fault::Bug, count, " numbers are no whole blocks of ", form.name);
  if (type == GgmlType::F32) return void(std::memcpy(blocks, numbers, static_cast<size_t>(count) * sizeof(float)));
  if (type == GgmlType::F16) return ggml::write_halves(numbers, blocks, count, float_to_f16);
  if (type == GgmlType::BF16) return ggml::write_halves(numbers, blocks, count, float_to_bf16);
  const auto write = ggml::block_writer(type);
  for (int64_t i = 0; i < count; i += form.block, blocks += form.bytes) write(numbers + i, blocks);
}

}  // namespace apus
