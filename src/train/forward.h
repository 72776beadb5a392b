// SPDX-License-Identifier: Apache-2.0
// The forward pass of training: NEFTune noise on the embeddings, layers kept or recomputed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "models/model.h"
#include "nn/largest_logit.h"
#include "nn/memo.h"
#include "train/batch.h"

namespace apus {

struct Forward {
  int64_t recomputed_layers = 0;  // the first so many layers run again in the backward pass
  // Set: every layer runs again, but with the results of its linear layers and of its attention kept. The
  // recomputed_layers keep less: not these parts.
  struct Selective {
    bool attention = false, feed_forward = false;
  };
  std::optional<Selective> selective;
  // Noise U(-1, 1) * alpha / sqrt(tokens of the sequence * hidden).
  double neftune_alpha = 0;
  // Told of attention's logits where gradients are made. Null: nobody is.
  std::shared_ptr<LargestLogit> logits;
  // Called with each part's name and output (kEmbedding, "layer 3", "the final norm"); to look for values that are not
  // finite, or to go on from one of them.
  static constexpr const char* kEmbedding = "the embedding";
  std::function<void(const std::string& part, const at::Tensor& output)> watch;

  // [T, D], after the final norm.
  at::Tensor hidden(const Model& model, const Inputs& in, Step& s) const;
  at::Tensor hidden(const Model& model, Batch& batch) const;

 private:
  std::optional<Memo::Kinds> remembered(int64_t layer) const;
};

}  // namespace apus
