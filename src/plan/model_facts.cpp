// SPDX-License-Identifier: Apache-2.0
#include "plan/model_facts.h"

#include <algorithm>

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/score_head.h"

namespace apus {
namespace {

// Every parameter under the name and in the order of the model's own modules (models/decoder, nn).
class Listing {
 public:
  Listing(const DecoderSpec& spec, std::vector<ParamFacts>& params)
      : spec_(spec), shape_(spec.shape), hidden_(spec.shape.hidden), params_(params) {}

  void all() {
    plain(spec_.backbone + ".embed_tokens.weight", {shape_.vocab, hidden_});
    for (int64_t i = 0; i < shape_.layers; ++i) layer(str(spec_.backbone, ".layers.", i), i);
    plain(spec_.backbone + ".norm.weight", {hidden_});
    if (spec_.head == Head::Scalar)
      linear("score", hidden_, spec_.labels, false);
    else if (spec_.head == Head::Vocab && !spec_.tied)
      linear("lm_head", hidden_, shape_.vocab, false);
  }

 private:
  void plain(const std::string& name, std::vector<int64_t> shape) { params_.push_back({name, std::move(shape)}); }
  void linear(const std::string& name, int64_t in, int64_t out, bool bias) {
    params_.push_back({name + ".weight", {out, in}, true});
    if (bias) plain(name + ".bias", {out});
  }
  void layer(const std::string& name, int64_t i) {
    plain(name + ".input_layernorm.weight", {hidden_});
    attention(name + ".self_attn");
    plain(name + ".post_attention_layernorm.weight", {hidden_});
    const FeedForwardSpec& kind = spec_.feed_forward[static_cast<size_t>(i)];
    if (const auto* dense = std::get_if<DenseSpec>(&kind))
      feed_forward(name + ".mlp", dense->ffn, dense->bias);
    else
      mixture(name + ".mlp", std::get<MixtureSpec>(kind));
  }
  void attention(const std::string& name) {
    const int64_t q = shape_.heads * shape_.head_dim, k = shape_.kv_heads * shape_.head_dim;
    linear(name + ".q_proj", hidden_, q, spec_.qkv_bias);
    linear(name + ".k_proj", hidden_, k, spec_.qkv_bias);
    linear(name + ".v_proj", hidden_, k, spec_.qkv_bias);
    linear(name + ".o_proj", q, hidden_, spec_.out_bias);
    if (!spec_.qk_norm) return;
    plain(name + ".q_norm.weight", {shape_.head_dim});
    plain(name + ".k_norm.weight", {shape_.head_dim});
  }
  void feed_forward(const std::string& name, int64_t ffn, bool bias) {
    linear(name + ".gate_proj", hidden_, ffn, bias);
    linear(name + ".up_proj", hidden_, ffn, bias);
    linear(name + ".down_proj", ffn, hidden_, bias);
  }
  void mixture(const std::string& name, const MixtureSpec& m) {
    linear(name + ".gate", hidden_, m.experts, false);
    plain(name + ".experts.gate_up_proj", {m.experts, 2 * m.ffn, hidden_});
    plain(name + ".experts.down_proj", {m.experts, hidden_, m.ffn});
    if (m.shared_ffn == 0) return;
    feed_forward(name + ".shared_expert", m.shared_ffn, false);
    linear(name + ".shared_expert_gate", hidden_, 1, false);
  }

  const DecoderSpec& spec_;
  const ModelShape& shape_;
  const int64_t hidden_;
  std::vector<ParamFacts>& params_;
};

// The widest feed-forward of each kind, which is that of every layer in the known families.
void add_feed_forward(const FeedForwardSpec& kind, ModelFacts& m) {
  const auto* mixture = std::get_if<MixtureSpec>(&kind);
  m.sparse.push_back(mixture != nullptr);
  if (!mixture) return void(m.ffn = std::max(m.ffn, std::get<DenseSpec>(kind).ffn));
  m.expert_ffn = std::max(m.expert_ffn, mixture->ffn);
  m.shared_ffn = std::max(m.shared_ffn, mixture->shared_ffn);
}

}  // namespace

int64_t ParamFacts::numel() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

int64_t ModelFacts::parameters() const {
  int64_t n = 0;
  for (const ParamFacts& p : params) n += p.numel();
  return n;
}

int64_t ModelFacts::active_parameters() const {
  int64_t n = 0;
  for (const ParamFacts& p : params) n += p.shape.size() == 3 ? p.numel() / experts * per_token : p.numel();
  return n;
}

int64_t ModelFacts::matrix_elements() const {
  int64_t n = tied ? vocab * hidden : 0;  // the head; the embedding only looks up
  for (const ParamFacts& p : params)
    n += p.shape.size() == 3 ? p.numel() / experts * per_token : p.linear ? p.numel() : 0;
  return n;
}

std::vector<std::string> ModelFacts::linear_modules() const {
  std::vector<std::string> names;
  for (const ParamFacts& p : params)
    if (p.linear) {
      names.push_back(p.module());
    } else if (p.shape.size() == 3) {  // of stacked experts the first
      const std::string expert = p.name.substr(0, p.name.rfind('.')) + ".0.";
      const bool pair = p.name.ends_with(".gate_up_proj");
      for (const char* part :
           pair ? std::vector<const char*>{"gate_proj", "up_proj"} : std::vector<const char*>{"down_proj"})
        names.push_back(expert + part);
    }
  return names;
}

ModelFacts model_facts(const Json& config) {
  const DecoderSpec spec = describe_model(config, score_head_of(config) ? Head::Scalar : Head::Vocab);
  const ModelShape& shape = spec.shape;
  const Config c(config);
  ModelFacts m;
  m.type = c.text("model_type", ""), m.dtype = c.text("torch_dtype", c.text("dtype", ""));
  m.layers = shape.layers, m.hidden = shape.hidden, m.vocab = shape.vocab, m.positions = shape.max_positions;
  m.heads = shape.heads, m.kv_heads = shape.kv_heads, m.head_dim = shape.head_dim;
  m.tied = spec.tied, m.qk_norm = spec.qk_norm, m.act = spec.act;
  m.experts = shape.experts, m.per_token = shape.experts_per_token;
  for (const FeedForwardSpec& kind : spec.feed_forward) add_feed_forward(kind, m);
  Listing(spec, m.params).all();
  return m;
}

}  // namespace apus
