// SPDX-License-Identifier: Apache-2.0
// The memory of inference: weights, cache and one forward pass of the engine (engine/engine.cpp decides the cache's
// size in the same way). With several devices the layers lie one after the other on them (--device_map); the fullest
// device counts.
#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "models/spec/seeing_spec.h"
#include "models/spec/tuning_groups.h"
#include "plan/plan.h"

namespace apus {
namespace {
// On a processor the cache is no larger unasked, but for one context.
constexpr double kHostCache = 2048.0 * 1024 * 1024;

struct Held {
  double elements = 0, layers = 0;  // weights, and what share of all layers
};

// Which of the parts (embedding, layers, norm and head) a parameter belongs to. A tower lies beside the embedding that
// it feeds.
size_t part_of(const ModelFacts& m, const std::string& name) {
  constexpr FrozenGroups kTowers = {.llm = false, .vit = true, .aligner = true};
  if (m.seeing && is_frozen(*m.seeing, kTowers, name)) return 0;
  if (name == m.embedding + ".weight") return 0;
  if (!name.starts_with(m.layer)) return static_cast<size_t>(m.layers) + 1;
  return static_cast<size_t>(std::stoll(name.substr(m.layer.size()))) + 1;
}

// What the fullest of `devices` holds when the parts are cut into as many runs.
Held fullest(const ModelFacts& m, int devices) {
  std::vector<double> parts(static_cast<size_t>(m.layers) + 2, 0.0);
  for (const ParamFacts& p : m.params) parts[part_of(m, p.name)] += static_cast<double>(p.numel());
  double low = *std::max_element(parts.begin(), parts.end()), high = static_cast<double>(m.parameters());
  const auto cut_at = [&](double most) {  // runs of at most so much each: how many, and the largest
    int runs = 1;
    Held run, largest;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (run.elements + parts[i] > most) ++runs, run = {};
      run.elements += parts[i], run.layers += i > 0 && i + 1 < parts.size();
      if (run.elements > largest.elements) largest = run;
    }
    return std::pair(runs, largest);
  };
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (cut_at(middle).first <= devices ? high : low) = middle;
  }
  Held held = cut_at(high).second;
  held.layers /= static_cast<double>(m.layers);
  return held;
}
}  // namespace

double cache_bytes_per_token(const ModelFacts& m, double element, bool codes) {
  constexpr double kScale = 4;  // behind a head's codes
  const auto bytes = [&](int64_t head) {
    return codes ? static_cast<double>(head) + kScale : element * static_cast<double>(head);
  };
  if (!m.cached.empty()) {
    double all = 0;
    for (const auto& layer : m.cached) all += 2 * static_cast<double>(layer.heads) * bytes(layer.dim);
    return all;
  }
  return static_cast<double>(m.token_layers) *
         (m.latent > 0 ? bytes(m.latent)
                       : 2 * static_cast<double>(m.kv_heads) * bytes(m.head_dim + m.position_numbers));
}

MemoryUse infer_memory(const PlanSpec& s, Plan& plan) {
  const ModelFacts& m = s.model;
  const InferSpec& infer = s.infer;
  const auto h = static_cast<double>(m.hidden), q = static_cast<double>(m.heads * m.head_dim),
             k = static_cast<double>(m.kv_heads * m.head_dim);
  const double ffn = static_cast<double>(std::max(m.experts > 0 ? m.expert_ffn * m.per_token : m.ffn, m.shared_ffn));
  const double gated = m.act == Activation::Silu ? 3 : 4;  // gate, up, their product; others than silu are apart
  const auto tokens = static_cast<double>(std::min(infer.step_tokens, infer.sequences * infer.context));
  MemoryUse use;
  const Held held = s.train.devices > 1 ? fullest(m, s.train.devices) : Held{plan.tuning.elements, 1};
  of(use.at_peak, Holds::Weights) = held.elements / plan.tuning.elements * weight_bytes(plan.tuning, s.train) +
                                    held.layers * plan.tuning.adapter * s.tuning.adapter_bytes;
  of(use.at_peak, Holds::Runtime) = s.device.context + s.device.reserved;
  of(use.at_peak, Holds::Activations) = tokens * s.element() * (4 * h + std::max(3 * q + 3 * k, gated * ffn));
  of(use.at_peak, Holds::Head) =
      static_cast<double>(std::min<int64_t>(infer.sequences, 256)) * static_cast<double>(m.vocab) * 4;
  plan.cache_token_bytes = cache_bytes_per_token(m, s.element(), infer.cache_codes);
  // States are in f32.
  const double states = static_cast<double>(m.state_layers * m.state_numbers) * std::max(s.element(), 4.0);
  const double one = held.layers * (plan.cache_token_bytes * static_cast<double>(infer.context) + states),
               all = one * static_cast<double>(infer.sequences);
  const double left =
      s.device.memory * infer.memory_share - of(use.at_peak, Holds::Weights) - of(use.at_peak, Holds::Runtime);
  double cache = infer.cache_bytes > 0 ? infer.cache_bytes
                 : s.device.host       ? std::min(left, std::max(kHostCache, one))
                                       : left;
  cache = infer.cached ? std::clamp(cache, one, all) : 0;  // less than one sequence is no plan
  of(use.at_peak, Holds::Cache) = cache;
  plan.full_sequences = one > 0 ? static_cast<int64_t>(cache / one) : 0;
  use.peak = sum(use.at_peak), use.when = s.infer.cached ? "a full step with a full cache" : "a full step";
  return use;
}

}  // namespace apus
