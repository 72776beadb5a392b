// SPDX-License-Identifier: Apache-2.0
// The memory of the same run under ms-swift (PyTorch, transformers, peft, DeepSpeed), for comparison. docs/plan.md
// holds the assumptions, and the measured rows they were held against.
#include <algorithm>

#include "plan/plan.h"

namespace apus {
namespace {

constexpr double kAllocator = 1.05;  // its caching allocator holds this much of what is in use
// Bytes a token and word of the vocabulary: logits in bf16, in f32, their log-softmax,
// and the gradients in f32 and bf16.
constexpr double kLogits = 2 + 4 + 4 + 4 + 2;
// Bytes an element of an adapted layer's input (in f32, dropped out, and the mask) and output
// (base's, and the factors' in f32).
constexpr double kAdapted = 4 + 4 + 1, kOutput = 2 + 4;
constexpr double kZeroBucket = 2e8 * 4;  // elements of ZeRO-2's bucket, f32
constexpr double kLiveParameters = 1e9;  // that ZeRO-3 keeps gathered

double largest_layer(const TuningFacts& t, double tokens, double element) {
  double largest = 0;
  for (const LayerUse& l : t.layers) {
    double bytes = 0;
    for (const LinearUse* use : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down})
      bytes +=
          tokens * (use->rank > 0 ? kAdapted * static_cast<double>(use->in) + kOutput * static_cast<double>(use->out)
                                  : element * static_cast<double>(use->in + use->out));
    largest = std::max(largest, bytes);
  }
  return largest;
}

}  // namespace

MemoryUse python_stack_memory(const PlanSpec& s, const TuningFacts& t) {
  const TrainSpec& train = s.train;
  const auto layers = static_cast<double>(s.model.layers), n = static_cast<double>(train.devices);
  const double table = static_cast<double>(s.model.vocab * s.model.hidden),
               layer = largest_layer(t, train.tokens, train.element);
  const double trained = t.trained * train.element + t.adapter * t.spec.adapter_bytes;
  const auto again = static_cast<double>(std::min(train.recompute.layers, s.model.layers));
  MemoryUse use;
  of(use.at_peak, Holds::Runtime) = s.device.reserved + s.device.context;
  of(use.at_peak, Holds::Weights) =
      kAllocator * (t.elements * train.element / (train.zero >= 3 ? n : 1) + t.adapter * t.spec.adapter_bytes);
  of(use.at_peak, Holds::Gradients) = kAllocator * trained / (train.zero >= 2 ? n : 1);
  of(use.at_peak, Holds::Optimizer) = kAllocator * optimizer_state_bytes(t, train) / (train.zero >= 1 ? n : 1);
  of(use.at_peak, Holds::Activations) =
      kAllocator *
      (layers * static_cast<double>(s.model.hidden) * train.tokens * train.element + layer * (1 + layers - again));
  of(use.at_peak, Holds::Head) = kAllocator * kLogits * train.tokens * static_cast<double>(s.model.vocab);
  double communication = train.devices > 1 ? s.device.comm : 0;
  if (train.devices > 1 && train.zero == 2) communication += kAllocator * kZeroBucket;
  if (train.devices > 1 && train.zero == 3)
    communication += kAllocator * train.element * (std::min(kLiveParameters, t.elements) + table);
  of(use.at_peak, Holds::Communication) = communication;
  use.peak = sum(use.at_peak), use.when = "the loss";
  return use;
}

}  // namespace apus
