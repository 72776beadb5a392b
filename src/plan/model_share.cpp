// SPDX-License-Identifier: Apache-2.0
#include "plan/model_share.h"

#include <algorithm>
#include <numeric>

namespace apus {

namespace {

int64_t largest_part(int64_t size, int64_t parts) { return (size + parts - 1) / parts; }

// Rows of what is made, columns of what is summed; norms, and biases of sums, are whole.
void cut_matrix(ParamFacts& p, const ModelFacts& whole, const ModelFacts& part) {
  const std::string module = p.module(), last = module.substr(module.rfind('.') + 1);
  const auto cut = [&](size_t dim, int64_t of, int64_t to) {
    if (dim < p.shape.size()) p.shape[dim] = p.shape[dim] * to / of;
  };
  if (last == "q_proj") cut(0, whole.heads, part.heads);
  if (last == "k_proj" || last == "v_proj") cut(0, whole.kv_heads, part.kv_heads);
  if (last == "o_proj" || last == "dense" || last == "out_proj") cut(1, whole.heads, part.heads);
  if (module == whole.embedding || last == "lm_head") cut(0, whole.vocab, part.vocab);
  const bool shared = module.find("shared_expert") != std::string::npos;
  const int64_t ffn = shared ? whole.shared_ffn : whole.ffn, mine = shared ? part.shared_ffn : part.ffn;
  if (ffn > 0 && (last == "gate_proj" || last == "up_proj" || last == "c_fc" || last == "fc1")) cut(0, ffn, mine);
  if (ffn > 0 && (last == "down_proj" || last == "c_proj" || last == "fc2")) cut(1, ffn, mine);
}

void cut_experts(ParamFacts& p, const ModelFacts& whole, const ModelFacts& part) {
  p.shape[0] = part.experts;
  for (size_t dim = 1; dim < p.shape.size(); ++dim)
    if (p.shape[dim] == whole.expert_ffn || p.shape[dim] == 2 * whole.expert_ffn)
      p.shape[dim] = p.shape[dim] / whole.expert_ffn * part.expert_ffn;
}

}  // namespace

ModelFacts cut_model(const ModelFacts& whole, const ModelShare& share) {
  ModelFacts part = whole;
  for (int64_t* size : {&part.heads, &part.kv_heads, &part.ffn, &part.expert_ffn, &part.shared_ffn, &part.vocab})
    *size = largest_part(*size, share.tensor);
  part.experts = largest_part(part.experts, share.experts);
  for (ParamFacts& p : part.params)
    if (p.stacked)
      cut_experts(p, whole, part);
    else if (share.tensor > 1 && !p.tower)
      cut_matrix(p, whole, part);
  return part;
}

StageFacts stage_of(const ModelShare& share, size_t stage, bool tied) {
  if (share.stages.empty()) return {};
  const auto at = share.stages.begin() + static_cast<std::ptrdiff_t>(stage);
  const int64_t begin = std::accumulate(share.stages.begin(), at, int64_t{0});
  const bool first = stage == 0, last = stage + 1 == share.stages.size();
  return {.begin = begin, .end = begin + *at, .embedding = first, .head = last, .table = first || (last && tied)};
}

}  // namespace apus
