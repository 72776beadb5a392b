// SPDX-License-Identifier: Apache-2.0
// How long a step takes: arithmetic at the share of the peak that training reaches, bytes at the speed of memory,
// communication at the speed of the links. The three overlap, so the slowest of them counts.
#include <algorithm>

#include "plan/plan.h"

namespace apus {
namespace {

// Of one token, all layers and the head, forward.
double forward_flops(const PlanSpec& s, double context) {
  const ModelFacts& m = s.model;
  const auto attention = 4.0 * static_cast<double>(m.token_layers * m.heads * m.head_dim) * context;
  return 2.0 * static_cast<double>(m.matrix_elements()) + attention;
}

double link_speed(const PlanSpec& s) { return s.train.devices <= s.device.node ? s.device.link : s.device.network; }

Speed slowest(double arithmetic, double memory, double communication, double tokens) {
  const double longest = std::max({arithmetic, memory, communication});
  return {tokens / longest, 0, longest == arithmetic ? "arithmetic" : longest == memory ? "memory" : "communication"};
}

Speed training(const PlanSpec& s, const TuningFacts& t) {
  const TrainSpec& train = s.train;
  const auto micro = static_cast<double>(train.accumulation);
  const double tokens = train.tokens * micro / static_cast<double>(s.share.copies_of()), n = train.devices,
               others = (n - 1) / n;
  const double forward = forward_flops(s, static_cast<double>(s.row_tokens) / 2);
  const double active = static_cast<double>(s.model.active_parameters()) / static_cast<double>(s.model.parameters());
  const double weights_share =
      std::min(1.0, (t.trained_matrices + (t.head_trained ? static_cast<double>(s.model.vocab * s.model.hidden) : 0)) *
                        active / static_cast<double>(std::max<int64_t>(1, s.model.matrix_elements())));
  const double again = train.recompute.share(s.model.layers);
  const double passes = 2 + weights_share + again;  // forward, input gradients, weight gradients, layers again
  const double arithmetic =
      forward * passes * tokens / (s.device.flops(train.element) * s.device.share_of_peak(train.tokens));

  const double weights = t.elements * train.element,
               gradients = t.trained * train.element + t.adapter * t.spec.adapter_bytes;
  const double state = optimizer_state_bytes(t, train) / (train.zero >= 1 ? n : 1);
  const double memory = (weights * passes * micro + 2 * state + 3 * gradients) / s.device.memory_speed;
  double moved = 2 * others * gradients;  // all-reduce; or reduce-scatter and all-gather
  if (train.zero >= 3) moved = others * (2 * weights * micro + gradients * micro);
  const double communication = n > 1 ? moved / link_speed(s) : 0;
  return slowest(arithmetic, memory, communication, tokens * n);
}

Speed inference(const PlanSpec& s, const TuningFacts& tuning) {
  const double peak = s.device.flops(s.element()) * s.device.efficiency,
               context = static_cast<double>(s.infer.context) / 2;
  const double weights = static_cast<double>(s.model.active_parameters()) *
                         (s.train.held_bits > 0 ? weight_bytes(tuning, s.train) / tuning.elements : s.element());
  const auto sequences = static_cast<double>(s.infer.sequences);
  const double cache = sequences * context * cache_bytes_per_token(s.model, s.element(), s.infer.cache_codes);
  Speed speed =
      slowest(sequences * forward_flops(s, context) / peak, (weights + cache) / s.device.memory_speed, 0, sequences);
  speed.prompt_tokens_per_second = peak / forward_flops(s, context / 2);
  return speed;
}

}  // namespace

Speed estimated_speed(const PlanSpec& s, const TuningFacts& t) {
  return s.inference ? inference(s, t) : training(s, t);
}

}  // namespace apus
