// SPDX-License-Identifier: Apache-2.0
// Frequencies are computed in f32 in the order of the original implementations: far into a text a last bit shows.
#include "nn/rope_spec.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace apus {

namespace {

// theta^(2i / dim): how many positions each frequency takes for one radian.
std::vector<float> periods(const RopeSpec& s, float theta) {
  std::vector<float> out;
  for (int64_t i = 0; i < (s.dim + 1) / 2; ++i)  // of an odd number one more turns
    out.push_back(std::pow(theta, static_cast<float>(2 * i) / static_cast<float>(s.dim)));
  return out;
}

std::vector<float> inverted(std::vector<float> values) {
  for (float& v : values) v = 1 / v;
  return values;
}

double yarn_scale(double factor, double mscale = 1) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

// The index of the frequency that turns `rotations` times over the original context.
double yarn_dim(double rotations, const RopeSpec& s) {
  return static_cast<double>(s.dim) * std::log(s.original_positions / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(s.theta));
}

RopeFrequencies yarn(const RopeSpec& s) {
  double low = yarn_dim(s.beta_fast, s), high = yarn_dim(s.beta_slow, s);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(s.dim - 1));
  if (low == high) high += 0.001;
  RopeFrequencies out{periods(s, static_cast<float>(s.theta)), s.attention_factor};
  for (size_t i = 0; i < out.inverse.size(); ++i) {
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.F, 1.F);
    const float kept = 1 - ramp, period = out.inverse[i];
    out.inverse[i] = 1 / (static_cast<float>(s.factor) * period) * (1 - kept) + 1 / period * kept;
  }
  if (s.attention_factor > 0) return out;
  const bool both = s.mscale != 0 && s.mscale_all_dim != 0;
  out.scale = both ? yarn_scale(s.factor, s.mscale) / yarn_scale(s.factor, s.mscale_all_dim) : yarn_scale(s.factor);
  return out;
}

RopeFrequencies llama3(const RopeSpec& s) {
  std::vector<float> inverse = inverted(periods(s, static_cast<float>(s.theta)));
  const auto low_wavelength = static_cast<float>(s.original_positions / s.low_freq_factor),
             high_wavelength = static_cast<float>(s.original_positions / s.high_freq_factor),
             factor = static_cast<float>(s.factor);
  for (float& f : inverse) {
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / f;
    if (wavelength > low_wavelength) {
      f /= factor;
    } else if (wavelength >= high_wavelength) {
      const float smooth =
          (static_cast<float>(s.original_positions) / wavelength - static_cast<float>(s.low_freq_factor)) /
          static_cast<float>(s.high_freq_factor - s.low_freq_factor);
      f = (1 - smooth) * f / factor + smooth * f;
    }
  }
  return {std::move(inverse)};
}

// The base grows with the text.
RopeFrequencies dynamic(const RopeSpec& s, int64_t length) {
  auto theta = static_cast<float>(s.theta);
  if (static_cast<double>(length) > s.original_positions) {
    const auto stretch =
        static_cast<float>(s.factor) * static_cast<float>(length) / static_cast<float>(s.original_positions) -
        static_cast<float>(s.factor - 1);
    theta *= std::pow(stretch, static_cast<float>(static_cast<double>(s.dim) / static_cast<double>(s.dim - 2)));
  }
  return {inverted(periods(s, theta))};
}

// Each period has a factor of its own; another set for texts beyond the original context.
RopeFrequencies longrope(const RopeSpec& s, int64_t length) {
  const auto& factors = static_cast<double>(length) > s.original_positions ? s.long_factor : s.short_factor;
  RopeFrequencies out{periods(s, static_cast<float>(s.theta)), s.attention_factor};
  require(factors.size() == out.inverse.size(), Fault::Model, "config.json: rope type longrope: ", factors.size(),
          " factors for ", out.inverse.size(), " frequencies");
  for (size_t i = 0; i < factors.size(); ++i) out.inverse[i] = 1 / (static_cast<float>(factors[i]) * out.inverse[i]);
  if (s.attention_factor > 0) return out;
  out.scale = s.factor <= 1 ? 1 : std::sqrt(1 + std::log(s.factor) / std::log(s.original_positions));
  return out;
}

}  // namespace

bool follows_length(const RopeSpec& spec) { return spec.type == "dynamic" || spec.type == "longrope"; }

bool has_two_sets(const RopeSpec& spec) { return spec.type == "longrope" && spec.short_factor != spec.long_factor; }

RopeSpec with_one_set(RopeSpec spec, int64_t length) {
  if (!has_two_sets(spec)) return spec;
  const bool is_long = static_cast<double>(length) > spec.original_positions;
  (is_long ? spec.short_factor : spec.long_factor) = is_long ? spec.long_factor : spec.short_factor;
  return spec;
}

RopeFrequencies rope_frequencies(const RopeSpec& s, int64_t length) {
  if (s.type == "yarn") return yarn(s);
  if (s.type == "llama3") return llama3(s);
  if (s.type == "dynamic") return dynamic(s, length);
  if (s.type == "longrope") return longrope(s, length);
  require(s.type == "default" || s.type == "linear" || s.type == "proportional", Fault::Model,
          "config.json: rope type '", s.type,
          "' is not known; known: default, linear, dynamic, llama3, yarn, longrope, proportional");
  RopeFrequencies out{inverted(periods(s, static_cast<float>(s.theta)))};
  if (s.type == "proportional")
    std::fill(out.inverse.begin() + static_cast<int64_t>(s.turning * static_cast<double>(s.dim)) / 2, out.inverse.end(),
              0.F);
  if (s.type != "default")
    for (float& f : out.inverse) f /= static_cast<float>(s.factor);
  return out;
}

}  // namespace apus
