// SPDX-License-Identifier: Apache-2.0
// Q4_K, Q5_K and Q6_K: each sub-block tries several steps between its levels and keeps the one whose weighted squared
// error is least. Every sum runs through the block in order in f32, so the bytes are those of ggml's quantisers.
#include <algorithm>
#include <array>

#include "gguf/ggml_blocks.h"

namespace apus::ggml {

namespace {

constexpr float kNothing = 1e-15F;  // numbers below it are zero

// ---- Q4_K and Q5_K: levels of `scale * L - minimum` for 32 numbers

struct KForm {
  int most;     // the largest level
  float first;  // the first try's change of the number of levels
  float step;   // by which each further one changes it
  int tries;
};
// Where the importance of numbers is known.
constexpr float kFirst = -0.9F, kStep = 0.05F;
constexpr int kTries = 36;

struct SubLevels {
  float scale, minimum;
  std::array<int, kSmall> level{};
};

struct KSearch {
  const float* x;
  const KForm& form;
  std::array<float, kSmall> weight;
  float sum_w = 0, sum_x = 0;

  // `importance` may be null; `spread` is twice the mean square of the super-block.
  KSearch(const float* x, const float* importance, float spread, const KForm& form) : x(x), form(form) {
    float squares = 0;
    for (int i = 0; i < kSmall; ++i) squares += x[i] * x[i];
    const float average = std::sqrt(squares / kSmall);
    for (int i = 0; i < kSmall; ++i) {
      weight[i] = importance ? importance[i] * std::sqrt(spread + x[i] * x[i]) : average + std::fabs(x[i]);
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
          (form.first + form.step * static_cast<float>(step) + static_cast<float>(form.most)) / (most - least);
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

using Eight = std::array<float, 8>;
struct Rounded {
  float step = 0;
  std::array<int, 8> level{};
};

// To levels of 63 at most, the largest number being the largest level.
Rounded rounded(const Eight& x) {
  const float most = std::max(0.0F, *std::max_element(x.begin(), x.end())), per_number = most > 0 ? 63 / most : 0;
  Rounded out{most / 63};
  for (size_t i = 0; i < x.size(); ++i) out.level[i] = std::min(63, nearest(per_number * x[i]) & 255);
  return out;
}

// The same by a search for the least weighted squared error: first of the step, then of each level.
class WeighedRounding {
 public:
  WeighedRounding(const Eight& x, const Eight& weight) : x_(x), weight_(weight) {}
  Rounded best() {
    const float most = *std::max_element(x_.begin(), x_.end());
    if (most < kNothing) return {};
    float per_number = 63 / most, least = error(per_number, 255);
    for (int k = -4; k <= 4; ++k)
      if (const float tried = (0.1F * static_cast<float>(k) + 63) / most; k != 0)
        if (const float e = error(tried, 63); e < least) least = e, per_number = tried;
    for (size_t i = 0; i < x_.size(); ++i) {
      const int l = out_.level[i] = std::min(63, nearest(per_number * x_[i]));
      const float w = weight_[i], number = static_cast<float>(l);
      sum_xl_ += w * x_[i] * number, sum_ll_ += w * number * number;
    }
    for (int round = 0; round < 5 && improve(); ++round) {}
    out_.step = sum_ll_ > 0 ? sum_xl_ / sum_ll_ : 0;
    return out_;
  }

 private:
  float error(float per_number, int most) const {
    float sum = 0;
    const float step = 1 / per_number;
    for (size_t i = 0; i < x_.size(); ++i) {
      const float difference = x_[i] - step * static_cast<float>(std::min(most, nearest(per_number * x_[i])));
      sum += weight_[i] * difference * difference;
    }
    return sum;
  }
  bool improve() {
    bool changed = false;
    for (size_t i = 0; i < x_.size(); ++i) {
      const float w = weight_[i], old = static_cast<float>(out_.level[i]);
      float xl = sum_xl_ - w * x_[i] * old, ll = sum_ll_ - w * old * old;
      if (!(xl > 0) || !(ll > 0)) continue;
      const int level = std::min(63, nearest(x_[i] * ll / xl));
      if (level == out_.level[i]) continue;
      const float number = static_cast<float>(level);
      xl += w * x_[i] * number, ll += w * number * number;
      if (!(xl * xl * sum_ll_ > sum_xl_ * sum_xl_ * ll)) continue;
      out_.level[i] = level, sum_xl_ = xl, sum_ll_ = ll, changed = true;
    }
    return changed;
  }

  const Eight &x_, &weight_;
  Rounded out_;
  float sum_xl_ = 0, sum_ll_ = 0;
};

// The levels of a super-block; its scales go to b.
std::array<int, kSuper> search_k(const float* x, const float* importance, const KForm& form, std::byte* b) {
  std::array<int, kSuper> level;
  Eight scales, minima, weights;
  float squares = 0;
  for (int i = 0; i < kSuper; ++i) squares += x[i] * x[i];
  for (int j = 0; j < 8; ++j) {
    const KSearch search(x + 32 * j, importance ? importance + 32 * j : nullptr, 2 * squares / kSuper, form);
    const SubLevels found = search.best();
    std::copy(found.level.begin(), found.level.end(), level.begin() + 32 * j);
    scales[j] = found.scale, minima[j] = found.minimum, weights[j] = search.sum_w;
  }
  const Rounded by_scale = importance ? WeighedRounding(scales, weights).best() : rounded(scales),
                by_minimum = importance ? WeighedRounding(minima, weights).best() : rounded(minima);
  const std::array<int, 8>&scale = by_scale.level, &minimum = by_minimum.level;
  const float d = put_half(b, by_scale.step), dmin = put_half(b + 2, by_minimum.step);
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

}  // namespace

void write_q4_k(const float* x, const float* importance, std::byte* b) {
  const KForm form = importance ? KForm{15, kFirst, kStep, kTries} : KForm{15, -1, 0.1F, 20};
  put_k_nibbles(b + 16, search_k(x, importance, form, b));
}

void write_q5_k(const float* x, const float* importance, std::byte* b) {
  const KForm form = importance ? KForm{31, kFirst, kStep, kTries} : KForm{31, -0.5F, 0.1F, 15};
  const auto level = search_k(x, importance, form, b);
  for (int l = 0; l < 32; ++l) {
    int high = 0;
    for (int j = 0; j < 8; ++j) high |= (level[32 * j + l] >> 4) << j;
    put(b, 16 + l, high);
  }
  put_k_nibbles(b + 48, level);
}

namespace {

// ---- Q6_K: levels from -32 to 31 of `scale * L` for 16 numbers

float fit_six_bits(const float* x, const float* importance, int* level) {
  const float most = signed_largest(x, 16);
  std::fill(level, level + 16, -32);
  if (std::fabs(most) < kNothing) return 0;
  std::array<int, 16> tried;
  float sum_xl = 0, sum_ll = 0;
  const auto attempt = [&](float per_level) {
    sum_xl = sum_ll = 0;
    for (int i = 0; i < 16; ++i) {
      const int l = tried[static_cast<size_t>(i)] = std::clamp(nearest(per_level * x[i]), -32, 31);
      const float w = importance ? importance[i] : x[i] * x[i], number = static_cast<float>(l);
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

}  // namespace

void write_q6_k(const float* x, const float* importance, std::byte* b) {
  std::array<int, kSuper> level;
  std::array<float, 16> scales;
  for (int j = 0; j < 16; ++j)
    scales[static_cast<size_t>(j)] =
        fit_six_bits(x + 16 * j, importance ? importance + 16 * j : nullptr, level.data() + 16 * j);
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
      const auto at = [&](int s) {
        const int place = 128 * a + 32 * s + l;
        return level[static_cast<size_t>(place)] + 32;
      };
      put(b, 64 * a + l, (at(0) & 15) | (at(2) & 15) << 4);
      put(b, 64 * a + 32 + l, (at(1) & 15) | (at(3) & 15) << 4);
      put(b, 128 + 32 * a + l, at(0) >> 4 | (at(1) >> 4) << 2 | (at(2) >> 4) << 4 | (at(3) >> 4) << 6);
    }
}

}  // namespace apus::ggml
