// SPDX-License-Identifier: Apache-2.0
#include "engine/answer/sampling_fields.h"

#include <algorithm>

namespace apus {

SamplingWishes with_fallback(SamplingWishes wishes, const SamplingWishes& fallback) {
  const auto fill_in = [](auto& wish, const auto& other) {
    if (!wish) wish = other;
  };
  each_sampling_field([&](const auto& field) { fill_in(wishes.*field.wish, fallback.*field.wish); });
  fill_in(wishes.do_sample, fallback.do_sample);
  fill_in(wishes.max_new_tokens, fallback.max_new_tokens);
  if (wishes.never.empty()) wishes.never = fallback.never;
  if (wishes.never_first.empty()) wishes.never_first = fallback.never_first;
  return wishes;
}

Sampling resolve(const SamplingWishes& request, const SamplingWishes& checkpoint) {
  const SamplingWishes w = with_fallback(request, checkpoint);
  Sampling s;
  each_sampling_field([&](const auto& field) {
    const auto neutral = s.*field.value;
    s.*field.value = (w.*field.wish).value_or(neutral);
  });
  const bool draws = request.temperature ? *request.temperature > 0 : w.do_sample.value_or(false);
  if (!draws) s.temperature = 0;
  if (s.top_p == 0) s.top_p = 1, s.temperature = 0;  // nothing but the likeliest
  s.top_k = std::max<int64_t>(s.top_k, 0);           // -1: all
  s.max_new_tokens = request.max_new_tokens.value_or(INT32_MAX);
  s.never = w.never, s.never_first = w.never_first;
  return s;
}

}  // namespace apus
