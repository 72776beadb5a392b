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

// Of one micro-batch, what a device sends to those it shares rows with: tokens of attention's heads, there and back;
// keys and values that go round, and back beside them the sums of their gradients in f32; a state's in f32; and the
// final states. Forward passes that run again send anew. Windows are not looked at.
double row_bytes(const PlanSpec& s) {
  const TrainSpec& t = s.train;
  const ModelFacts& m = s.model;
  const auto sharers = static_cast<double>(t.row_sharers), groups = static_cast<double>(t.row_groups);
  const double q = static_cast<double>(m.heads * m.head_dim), k = static_cast<double>(m.kv_heads * m.head_dim);
  const double wide = std::max(4.0, t.element), others = 1 - groups / sharers, round = groups - 1;
  const double forward = (others * (2 * q + 2 * k) + round * 2 * k) * t.element,
               backward = forward + groups * 2 * k * (groups > 1 ? wide : 0);
  const double state = (1 - 1 / sharers) * m.state_kept * wide / 2;  // about half of what it keeps
  const auto attending = static_cast<double>(m.token_layers), keeping = static_cast<double>(m.state_layers);
  const double again = 1 + (t.recompute.selective ? 0 : t.recompute.share(m.layers));
  const double layers = attending * (again * forward + backward) + keeping * (again + 1) * state;
  return sharers > 1 ? t.tokens * (layers + 2 * (sharers - 1) * static_cast<double>(m.hidden) * t.element) : 0;
}

// How large a part of all weights, or of those that are trained, a device of the mesh has. `experts`: the experts'
// part of them.
double own_part(const ModelShare& share, double experts) {
  return (1 - experts + experts / static_cast<double>(share.experts)) / static_cast<double>(share.copies_of());
}

double experts_part(const ModelFacts& m) {
  double stacked = 0;
  for (const ParamFacts& p : m.params) stacked += p.stacked ? static_cast<double>(p.numel()) : 0;
  return stacked / static_cast<double>(m.parameters());
}

// Of one micro-batch, how long a device waits for those that it shares out the model with: sums behind attention and
// feed-forward, tokens on their way to experts and back, what a stage hands on; in the backward pass again. Where sums
// give each its own tokens, a pass sends as much, and what a layer read is gathered once more.
double mesh_seconds(const PlanSpec& s) {
  const ModelFacts& m = s.model;
  const auto tensor = static_cast<double>(s.share.tensor), experts = static_cast<double>(s.share.experts),
             stages = static_cast<double>(std::max<size_t>(1, s.share.stages.size())),
             pieces = static_cast<double>(s.share.pieces);
  const double token = s.train.tokens * static_cast<double>(m.hidden) * s.train.element;
  const double passes = 2 + (s.train.recompute.selective ? 0 : s.train.recompute.share(m.layers));
  const auto sparse = static_cast<double>(std::count(m.sparse.begin(), m.sparse.end(), true));
  const double again = s.train.residual_sharers > 1 ? 1 - s.train.recompute.share(m.layers) : 0;
  const double sums = static_cast<double>(m.layers) / stages * 2 * (2 * passes + again) * (tensor - 1) / tensor * token,
               sent = sparse / stages * 2 * passes * (experts - 1) / experts * static_cast<double>(m.per_token) * token;
  const auto link = [&](double devices) {
    return devices <= static_cast<double>(s.device.node) ? s.device.link : s.device.network;
  };
  return sums / link(tensor) + sent / link(tensor * experts) +
         (stages > 1 ? 2 * pieces * token / link(tensor * stages) : 0);
}

Speed slowest(double arithmetic, double memory, double communication, double tokens) {
  const double longest = std::max({arithmetic, memory, communication});
  return {.tokens_per_second = tokens / longest,
          .bound = longest == arithmetic ? "arithmetic"
                   : longest == memory   ? "memory"
                                         : "communication"};
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
  const auto stages = static_cast<double>(std::max<size_t>(1, s.share.stages.size()));
  // Stages wait at the begin and at the end of an update.
  const double waiting = (stages - 1) / micro / static_cast<double>(s.share.pieces);
  const double arithmetic = forward * passes * tokens * (1 + waiting) /
                            (s.device.flops(train.element) * s.device.share_of_peak(train.tokens));
  const double waits = s.share.any() ? mesh_seconds(s) * micro : 0;

  const double trained = t.trained + t.adapter, own = own_part(s.share, trained > 0 ? t.of_experts / trained : 0);
  const double weights = t.elements * train.element * own_part(s.share, experts_part(s.model)),
               gradients = (t.trained * train.element + t.adapter * t.spec.adapter_bytes) * own;
  const double state = optimizer_state_bytes(t, train) * own / (train.zero >= 1 ? n : 1);
  const double memory = (weights * passes * micro + 2 * state + 3 * gradients) / s.device.memory_speed;
  double moved = 2 * others * gradients;  // all-reduce; or reduce-scatter and all-gather
  if (train.zero >= 3) moved = others * (2 * weights * micro + gradients * micro);
  const double of_rows = row_bytes(s);
  const double communication = n > 1 ? (moved + of_rows * micro) / link_speed(s) : 0;
  Speed speed = slowest(arithmetic + waits, memory, communication, tokens * n);
  if (speed.bound == "arithmetic" && waits > arithmetic) speed.bound = "communication";
  speed.row_bytes = of_rows;
  speed.token_flops = forward * (passes - again);
  return speed;
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

double RecomputeFacts::share(int64_t model_layers) const {
  const double part = !selective ? 1 : (feed_forward ? 0.55 : 0) + (attention ? 0.1 : 0);
  return part * static_cast<double>(std::min(layers, model_layers)) / static_cast<double>(model_layers);
}

Speed estimated_speed(const PlanSpec& s, const TuningFacts& t) {
  return s.inference ? inference(s, t) : training(s, t);
}

}  // namespace apus
