// SPDX-License-Identifier: Apache-2.0
// Losses over the words of a model, whoever holds its tokens and its vocabulary.
#pragma once

#include <optional>

#include "models/model.h"
#include "ops/shared_head.h"

namespace apus {

// How ranks share out the rows of the model's head; nothing where each holds all of them.
std::optional<ops::WordShare> word_share(const Model& model);

// ops::head_loss of factors that the model gave.
ops::HeadLoss label_loss(const Model& model, const ops::HeadFactors& factors, const at::Tensor& label_T,
                         const at::Tensor& weight_T, const ops::HeadLossOptions& options);

// log p of each label, and the entropy there where it is asked for: f32 [T], differentiable; 0 where there is no label.
// `step` is that of the forward pass which gave the hidden states: where ranks shared out its tokens, each makes the
// logits of its own, and all get the numbers of all.
ops::HeadLogprob label_head(const Model& model, const ops::HeadFactors& factors, const at::Tensor& label_T,
                            const Step& step, double temperature, bool entropy);
at::Tensor label_logprobs(const Model& model, const ops::HeadFactors& factors, const at::Tensor& label_T,
                          const Step& step, double temperature = 1);

}  // namespace apus
