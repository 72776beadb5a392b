// SPDX-License-Identifier: Apache-2.0
#include "nn/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "nn/token_share.h"
#include "nn/training_step.h"
#include "ops/rope_table.h"

namespace apus {

namespace {

// Which of the three positions each frequency follows.
std::vector<int> section_axes(const RopeSpec& s) {
  const int64_t r = (s.dim + 1) / 2;
  std::vector<int> axis(static_cast<size_t>(r), 0);
  if (s.time_last) {
    for (int64_t i = 0; i < std::min(r, s.sections[0] + s.sections[1]); ++i) axis[static_cast<size_t>(i)] = 1 + i % 2;
  } else if (s.interleaved_sections) {
    for (int a = 1; a < 3; ++a)
      for (int64_t i = a; i < std::min(r, s.sections[a] * 3); i += 3) axis[static_cast<size_t>(i)] = a;
  } else {
    int64_t i = 0;
    for (int a = 0; a < 3; ++a)
      for (int64_t n = 0; n < s.sections[a] && i < r; ++n, ++i) axis[static_cast<size_t>(i)] = a;
  }
  return axis;
}

// Which of the four positions each number of a head follows that turns (sections_of_numbers).
std::vector<int> number_axes(const RopeSpec& s) {
  std::vector<int> axis;
  for (size_t a = 0; a < s.sections.size(); ++a)
    axis.insert(axis.end(), static_cast<size_t>(2 * s.sections[a]), static_cast<int>(a));
  return axis;
}

// The frequencies of one token after the other. Where they follow the length, that is the length of the text as it was
// when the token came: a row or prompt is there at once, an answer grows token by token. So neither packing nor reading
// a prompt in parts nor computing a sequence again changes anything.
class Frequencies {
 public:
  Frequencies(const RopeSpec& spec, const Step& step)
      : spec_(spec), step_(step), by_length_(follows_length(spec)), now_(rope_frequencies(spec, 0)) {}
  // For token t at `position`; true when they are others than those of the token before.
  bool move_to(int64_t t, int64_t position) {
    if (!by_length_) return false;
    while (t == end_) end_ += step_.length_q[next_++];
    int64_t length = std::max<int64_t>(step_.length_k[next_ - 1], position + 1);
    if (static_cast<double>(length) <= spec_.original_positions) length = 0;
    if (length == length_) return false;
    now_ = rope_frequencies(spec_, length_ = length);
    return true;
  }
  const RopeFrequencies& now() const { return now_; }

 private:
  const RopeSpec& spec_;
  const Step& step_;
  const bool by_length_;
  RopeFrequencies now_;
  int64_t length_ = 0, end_ = 0;  // end of the sequence that the last token belongs to
  size_t next_ = 0;
};

at::Tensor query_scale(const RopeSpec& spec, const at::Tensor& position) {
  const at::Tensor first_T = position.dim() == 2 ? position[0] : position;
  return ((first_T / spec.original_positions).floor().log1p() * spec.query_beta + 1).to(at::kFloat);
}

using Axes = std::vector<int>;
Axes axes_of(const RopeSpec& spec, const Step& step, bool second) {
  const auto r = static_cast<size_t>((spec.dim + 1) / 2);
  if (step.position.dim() != 2 || spec.sections.empty()) return Axes(r, 0);
  if (!spec.sections_of_numbers) return section_axes(spec);
  const Axes all = number_axes(spec);
  const auto half = all.begin() + static_cast<int64_t>(r);
  return second ? Axes(half, all.end()) : Axes(all.begin(), half);
}

Turn turn_of(const RopeSpec& spec, const Step& step, const Axes& axis) {
  const int64_t r = (spec.dim + 1) / 2, tokens = step.position.size(-1);
  const at::Tensor position = step.position.to(at::kCPU, at::kDouble).contiguous();
  const double* p = position.data_ptr<double>();
  const bool three = position.dim() == 2;
  at::Tensor cos = at::empty({tokens, r}, at::kFloat), sin = at::empty({tokens, r}, at::kFloat);
  float *c = cos.data_ptr<float>(), *s = sin.data_ptr<float>();

  Frequencies frequencies(spec, step);
  // Neighbours at the same position (decoding a batch) share a row.
  int64_t same_as = -1;
  for (int64_t t = 0; t < tokens; ++t) {
    if (frequencies.move_to(t, static_cast<int64_t>(p[t]))) same_as = -1;
    const RopeFrequencies& f = frequencies.now();
    if (!three && same_as >= 0 && p[same_as] == p[t]) {
      std::copy_n(c + same_as * r, r, c + t * r);
      std::copy_n(s + same_as * r, r, s + t * r);
      continue;
    }
    for (int64_t i = 0; i < r; ++i) {
      const float angle =
          static_cast<float>(p[axis[static_cast<size_t>(i)] * tokens + t]) * f.inverse[static_cast<size_t>(i)];
      c[t * r + i] = static_cast<float>(std::cos(static_cast<double>(angle)) * f.scale);
      s[t * r + i] = static_cast<float>(std::sin(static_cast<double>(spec.backwards ? -angle : angle)) * f.scale);
    }
    same_as = t;
  }
  const at::Device device = step.position.device();
  return {cos.to(device), sin.to(device), spec.query_beta > 0 ? query_scale(spec, position).to(device) : at::Tensor()};
}
// The same, made where the positions lie.
Turn turn_there(const RopeSpec& spec, const Step& step, const Axes& axis) {
  const RopeFrequencies f = rope_frequencies(spec, 0);
  auto [cos, sin] = ops::rope_table(step.position, f.inverse, axis, f.scale, spec.backwards);
  return {std::move(cos), std::move(sin), spec.query_beta > 0 ? query_scale(spec, step.position) : at::Tensor()};
}

// Of the tokens that this rank attends with.
Turn attended(const Turn& all, const TokenShare& share) {
  const auto own = [&](const at::Tensor& x_T) { return share.attended(x_T); };
  return {own(all.cos), own(all.sin), own(all.query_T), own(all.second_cos), own(all.second_sin)};
}
}  // namespace

void fill_rope(const std::vector<RopeSpec>& specs, Step& step) {
  step.turns.clear();
  const bool there = step.position.scalar_type() == at::kLong && ops::makes_rope_tables(step.position.device());
  for (const RopeSpec& spec : specs) {
    const bool own = there && !follows_length(spec) && (spec.dim + 1) / 2 <= ops::kMostFrequencies;
    const auto turn = [&](bool second) {
      const Axes axis = axes_of(spec, step, second);
      return own ? turn_there(spec, step, axis) : turn_of(spec, step, axis);
    };
    step.turns.push_back(turn(false));
    if (!spec.sections_of_numbers || step.position.dim() != 2) continue;
    const Turn second = turn(true);
    step.turns.back().second_cos = second.cos, step.turns.back().second_sin = second.sin;
  }
  if (const auto& share = training_of(step).tokens)
    for (Turn& turn : step.turns) turn = attended(turn, *share);
}

Turn turn_at(const RopeSpec& spec, const at::Tensor& position) {
  Step places;
  places.position = position;
  fill_rope({spec}, places);
  return places.turns[0];
}

}  // namespace apus
