// SPDX-License-Identifier: Apache-2.0
// The decoder that the text families share: embedding, pre-norm layers of attention and feed-forward, norm, head. A
// family's own file maps its config.json to this Spec and chooses each layer's feed-forward.
#pragma once

#include <algorithm>
#include <functional>

#include "models/config.h"
#include "models/model.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "nn/rope.h"

namespace apus {

struct DecoderSpec {
  ModelShape shape;
  double eps = 1e-6;
  std::string backbone = "model";  // the name of all that stands before the head
  bool tied = false, qkv_bias = false, out_bias = false, qk_norm = false;
  RopeSpec rope;
  Activation act = Activation::Silu;
  std::vector<int64_t> window;  // per layer, 0: full
  std::function<std::unique_ptr<FeedForward>(int64_t layer)> feed_forward;
};

// What a family's configuration class in transformers takes where the file leaves a key out.
struct FamilyDefaults {
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t positions = 32768;
  int64_t ffn = 0;        // 0: intermediate_size must be there
  int64_t head_dim = 0;   // 0: hidden / heads
  bool mlp_bias = false;  // the file's mlp_bias counts
};

// What nearly every family's config.json says in the same words. qk_norm, biases and feed_forward are the family's.
DecoderSpec read_decoder(const Config& config, const FamilyDefaults& defaults);

class DecoderLayer : public Module {
 public:
  DecoderLayer(const DecoderSpec& spec, int64_t index);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const;

 private:
  RmsNorm& norm1_;
  Attention& attention_;
  RmsNorm& norm2_;
  FeedForward& mlp_;
};

class Decoder : public Model {
 public:
  explicit Decoder(DecoderSpec spec);
  const ModelShape& shape() const override { return spec_.shape; }
  void begin(Step& s) const override;
  at::Tensor embed(const Inputs& in, const Step& s) const override;
  at::Tensor layer(int64_t i, at::Tensor x_TD, const Step& s) const override;
  at::Tensor final_norm(const at::Tensor& x_TD) const override;
  at::Tensor head_weight() const override;
  ops::HeadFactors head_factors(const at::Tensor& normed_TD, const Step& s) const override;
  at::Tensor head(const at::Tensor& normed_TD, const Step& s) const override;
  void take_scalar_head(int64_t labels) override;
  Head head_kind() const override { return head_kind_; }
  std::string backbone_name() const override { return spec_.backbone; }

 private:
  struct Backbone;
  DecoderSpec spec_;
  Backbone& backbone_;
  Linear* head_;
  Head head_kind_ = Head::Vocab;
};

}  // namespace apus
