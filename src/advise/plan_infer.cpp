// SPDX-License-Identifier: Apache-2.0
// Weights, cache and one forward of the engine (engine/engine.cpp decides the cache's size in the same way).
#include <algorithm>

#include "advise/plan.h"

namespace apus {
namespace {
constexpr double kHostCache =
    2048.0 * 1024 * 1024;  // on a processor the cache is no larger unasked, but for one context
}

double cache_bytes_per_token(const ModelFacts& m, double element) {
  return 2 * element * static_cast<double>(m.layers * m.kv_heads * m.head_dim);
}

MemoryUse infer_memory(const PlanSpec& s, Plan& plan) {
  const ModelFacts& m = s.model;
  const InferSpec& infer = s.infer;
  const auto h = static_cast<double>(m.hidden), q = static_cast<double>(m.heads * m.head_dim),
             k = static_cast<double>(m.kv_heads * m.head_dim);
  const double ffn = static_cast<double>(std::max(m.experts > 0 ? m.expert_ffn * m.per_token : m.ffn, m.shared_ffn));
  const auto tokens = static_cast<double>(std::min(infer.step_tokens, infer.sequences * infer.context));
  MemoryUse use;
  of(use.at_peak, Holds::Weights) = plan.tuning.elements * s.element() + plan.tuning.adapter * s.tuning.adapter_bytes;
  of(use.at_peak, Holds::Runtime) = s.device.context + s.device.reserved;
  of(use.at_peak, Holds::Activations) = tokens * s.element() * (4 * h + std::max(3 * q + 3 * k, 3 * ffn));
  of(use.at_peak, Holds::Head) =
      static_cast<double>(std::min<int64_t>(infer.sequences, 256)) * static_cast<double>(m.vocab) * 4;
  plan.cache_token_bytes = cache_bytes_per_token(m, s.element());
  const double one = plan.cache_token_bytes * static_cast<double>(infer.context),
               all = one * static_cast<double>(infer.sequences);
  const double left =
      s.device.memory * infer.memory_share - of(use.at_peak, Holds::Weights) - of(use.at_peak, Holds::Runtime);
  double cache = infer.cache_bytes > 0 ? infer.cache_bytes
                 : s.device.host       ? std::min(left, std::max(kHostCache, one))
                                       : left;
  cache = infer.cached ? std::clamp(cache, one, all) : 0;  // less than one sequence is no plan
  of(use.at_peak, Holds::Cache) = cache;
  plan.full_sequences = one > 0 ? static_cast<int64_t>(cache / one) : 0;
  use.peak = sum(use.at_peak), use.when = "a full step with a full cache";
  return use;
}

}  // namespace apus
