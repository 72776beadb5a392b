// SPDX-License-Identifier: Apache-2.0
#include "nn/rope.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace apus {

namespace {

double yarn_scale(double factor, double mscale = 1) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

// The index of the frequency that turns `rotations` times over the original context.
double yarn_dim(double rotations, const RopeSpec& s) {
  return static_cast<double>(s.dim) * std::log(s.original_positions / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(s.theta));
}

void apply_yarn(const RopeSpec& s, std::vector<double>& inverse, double& scale) {
  double low = yarn_dim(s.beta_fast, s), high = yarn_dim(s.beta_slow, s);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(s.dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inverse.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inverse[i] = inverse[i] / s.factor * ramp + inverse[i] * (1 - ramp);
  }
  if (s.attention_factor > 0)
    scale = s.attention_factor;
  else if (s.mscale > 0 && s.mscale_all_dim > 0)
    scale = yarn_scale(s.factor, s.mscale) / yarn_scale(s.factor, s.mscale_all_dim);
  else
    scale = yarn_scale(s.factor);
}

void apply_llama3(const RopeSpec& s, std::vector<double>& inverse) {
  const double low_wavelength = s.original_positions / s.low_freq_factor,
               high_wavelength = s.original_positions / s.high_freq_factor;
  for (double& f : inverse) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength > low_wavelength) {
      f /= s.factor;
    } else if (wavelength >= high_wavelength) {
      const double smooth =
          (s.original_positions / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
      f = (1 - smooth) * f / s.factor + smooth * f;
    }
  }
}

// Which of the three positions each frequency follows.
std::vector<int> section_axes(const RopeSpec& s) {
  const int64_t r = s.dim / 2;
  std::vector<int> axis(static_cast<size_t>(r), 0);
  if (s.interleaved_sections) {
    for (int a = 1; a < 3; ++a)
      for (int64_t i = a; i < std::min(r, s.sections[a] * 3); i += 3) axis[static_cast<size_t>(i)] = a;
  } else {
    int64_t i = 0;
    for (int a = 0; a < 3; ++a)
      for (int64_t n = 0; n < s.sections[a] && i < r; ++n, ++i) axis[static_cast<size_t>(i)] = a;
  }
  return axis;
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeSpec& s, int64_t length) {
  const int64_t r = s.dim / 2;
  double theta = s.theta, scale = 1;
  if (s.type == "dynamic" && static_cast<double>(length) > s.original_positions) {
    const double dim = static_cast<double>(s.dim);
    theta *= std::pow(s.factor * static_cast<double>(length) / s.original_positions - (s.factor - 1), dim / (dim - 2));
  }
  std::vector<double> inverse;
  for (int64_t i = 0; i < r; ++i)
    inverse.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(s.dim)));
  if (s.type == "linear")
    for (double& f : inverse) f /= s.factor;
  else if (s.type == "yarn")
    apply_yarn(s, inverse, scale);
  else if (s.type == "llama3")
    apply_llama3(s, inverse);
  else
    require(s.type == "default" || s.type == "dynamic", Fault::Model, "rope type '", s.type,
            "' is not known; known: default, linear, dynamic, llama3, yarn");
  return {std::vector<float>(inverse.begin(), inverse.end()), scale};
}

void fill_rope(const RopeSpec& spec, Step& step) {
  const int64_t r = spec.dim / 2, tokens = step.position.size(-1);
  const at::Tensor position = step.position.to(at::kCPU).contiguous();
  const int64_t* p = position.data_ptr<int64_t>();
  const bool three = position.dim() == 2;
  const std::vector<int> axis =
      three && !spec.sections.empty() ? section_axes(spec) : std::vector<int>(static_cast<size_t>(r), 0);
  at::Tensor cos = at::empty({tokens, r}, at::kFloat), sin = at::empty({tokens, r}, at::kFloat);
  float *c = cos.data_ptr<float>(), *s = sin.data_ptr<float>();

  // `dynamic` depends on each sequence's own length, so that packing changes nothing.
  RopeFrequencies f = rope_frequencies(spec, 0);
  size_t sequence = 0;
  int64_t end = spec.type == "dynamic" ? 0 : tokens;
  int64_t same_as = -1;  // neighbours at the same position (decoding a batch) share a row
  for (int64_t t = 0; t < tokens; ++t) {
    if (t == end) {
      f = rope_frequencies(spec, step.length_k[sequence]);
      end += step.length_q[sequence++];
      same_as = -1;
    }
    if (!three && same_as >= 0 && p[same_as] == p[t]) {
      std::copy_n(c + same_as * r, r, c + t * r);
      std::copy_n(s + same_as * r, r, s + t * r);
      continue;
    }
    for (int64_t i = 0; i < r; ++i) {
      const float angle =
          static_cast<float>(p[axis[static_cast<size_t>(i)] * tokens + t]) * f.inverse[static_cast<size_t>(i)];
      c[t * r + i] = static_cast<float>(std::cos(static_cast<double>(angle)) * f.scale);
      s[t * r + i] = static_cast<float>(std::sin(static_cast<double>(angle)) * f.scale);
    }
    same_as = t;
  }
  step.cos = cos.to(step.position.device());
  step.sin = sin.to(step.position.device());
}

}  // namespace apus
