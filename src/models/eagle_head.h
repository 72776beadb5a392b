// SPDX-License-Identifier: Apache-2.0
// An Eagle-3 head, from a checkpoint of its own: it looks at the states behind three of the model's layers, its one
// layer reads token and state side by side, and its words may be a part of the model's.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "models/guess_head.h"
#include "models/spec/decoder_spec.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/mlp.h"

namespace apus {

class EagleHead final : public GuessHead {
 public:
  // `config`: its config.json. `model`: the shape of the one that it guesses for.
  // `own_words`: its file has an embedding.
  EagleHead(const Json& config, const ModelShape& model, bool own_words);
  const ModelShape& shape() const override { return spec_.shape; }
  std::vector<int64_t> layers_seen() const override { return seen_; }
  at::Tensor begin(const at::Tensor& seen_TA) const override;
  at::Tensor states(const Model& model, const Inputs& next, const at::Tensor& state_TD, Step& s) const override;
  at::Tensor logits(const Model& model, const at::Tensor& state_RD) const override;
  int64_t words() const { return words_; }
  // Of each of its words, the model's.
  void set_words(const at::Tensor& id_W) { id_W_ = id_W; }

 private:
  struct Layer;
  const DecoderSpec spec_;
  const int64_t vocab_, words_;
  const bool normed_sum_;  // what attention gives is added to the normed state
  std::vector<int64_t> seen_;
  Embedding* embed_ = nullptr;  // null: the model's
  Linear& join_;
  Layer& layer_;
  Norm& norm_;
  Linear& head_;
  at::Tensor id_W_;
};

}  // namespace apus
