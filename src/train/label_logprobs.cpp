// SPDX-License-Identifier: Apache-2.0
#include "train/label_logprobs.h"

#include "dist/mesh.h"
#include "nn/token_share.h"
#include "nn/training_step.h"

namespace apus {

std::optional<ops::WordShare> word_share(const Model& model) {
  MeshView* const mesh = model.mesh();
  if (!mesh || mesh->size(Axis::Tp) == 1) return std::nullopt;
  const int64_t words = model.shape().vocab;
  return ops::WordShare{&mesh->comm(Axis::Tp), part_of(words, mesh->rank(Axis::Tp), mesh->size(Axis::Tp)).begin, words};
}

ops::HeadLoss label_loss(const Model& model, const ops::HeadFactors& factors, const at::Tensor& label_T,
                         const at::Tensor& weight_T, const ops::HeadLossOptions& options) {
  const auto share = word_share(model);
  return share ? ops::shared_head_loss(factors, *share, label_T, weight_T, options)
               : ops::head_loss(factors, label_T, weight_T, options);
}

ops::HeadLogprob label_head(const Model& model, const ops::HeadFactors& factors, const at::Tensor& label_T,
                            const Step& step, double temperature, bool entropy) {
  const auto& tokens = training_of(step).tokens;
  const at::Tensor of_T = tokens ? tokens->own_labels(label_T) : label_T;
  const auto words = word_share(model);
  ops::HeadLogprob out = words ? ops::shared_head_logprob(factors, *words, of_T, temperature, entropy)
                               : ops::head_logprob(factors, of_T, temperature, entropy);
  if (tokens) out.logprob_T = tokens->summed(out.logprob_T);
  if (tokens && entropy) out.entropy_T = tokens->summed(out.entropy_T);
  return out;
}

at::Tensor label_logprobs(const Model& model, const ops::HeadFactors& factors, const at::Tensor& label_T,
                          const Step& step, double temperature) {
  return label_head(model, factors, label_T, step, temperature, false).logprob_T;
}

}  // namespace apus
