// SPDX-License-Identifier: Apache-2.0
#include "plan/model_facts.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/nearest.h"
#include "models/config.h"

namespace apus {
namespace {

// What the families differ in: where biases are, and what counts where config.json says nothing (models/*.cpp).
struct Family {
  enum class Bias { None, Asked, Qkv, QkvUnlessDenied } bias = Bias::None;  // Asked: by attention_bias, on o_proj too
  bool mlp_bias_counts = false, qk_norm = false;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t positions = 32768;
  int64_t ffn = 0;       // 0: intermediate_size must be there
  int64_t head_dim = 0;  // 0: hidden / heads
};

const std::map<std::string, Family>& families() {
  using Bias = Family::Bias;
  static const std::map<std::string, Family> all = {
      {"llama", {.bias = Bias::Asked, .mlp_bias_counts = true, .positions = 2048}},
      {"mistral", {.kv_heads = 8, .positions = 131072}},
      {"qwen2", {.bias = Bias::Qkv, .kv_heads = 32}},
      {"qwen2_moe", {.bias = Bias::QkvUnlessDenied, .kv_heads = 16, .ffn = 5632}},
      {"qwen3", {.bias = Bias::Asked, .qk_norm = true, .kv_heads = 32, .head_dim = 128}},
      {"qwen3_moe", {.bias = Bias::Asked, .qk_norm = true, .kv_heads = 4, .ffn = 6144}},
  };
  return all;
}

const Family& family_of(const std::string& type) {
  const auto found = families().find(type);
  std::vector<std::string> known;
  for (const auto& [name, family] : families()) known.push_back(name);
  require(found != families().end(), Fault::Model, "config.json: the memory of model_type '", type,
          "' cannot be planned; known: ", join(known));
  return found->second;
}

class Listing {
 public:
  explicit Listing(ModelFacts& m) : m_(m) {}
  void plain(const std::string& name, int64_t size) { m_.params.push_back({name, {size}}); }
  void linear(const std::string& name, int64_t in, int64_t out, bool bias) {
    m_.params.push_back({name + ".weight", {out, in}, true});
    if (bias) plain(name + ".bias", out);
  }
  void feed_forward(const std::string& name, int64_t ffn, bool bias) {
    linear(name + ".gate_proj", m_.hidden, ffn, bias);
    linear(name + ".up_proj", m_.hidden, ffn, bias);
    linear(name + ".down_proj", ffn, m_.hidden, bias);
  }
  void experts(const std::string& name) {
    linear(name + ".gate", m_.hidden, m_.experts, false);
    m_.params.push_back({name + ".experts.gate_up_proj", {m_.experts, 2 * m_.expert_ffn, m_.hidden}});
    m_.params.push_back({name + ".experts.down_proj", {m_.experts, m_.hidden, m_.expert_ffn}});
    if (m_.shared_ffn == 0) return;
    feed_forward(name + ".shared_expert", m_.shared_ffn, false);
    linear(name + ".shared_expert_gate", m_.hidden, 1, false);
  }

 private:
  ModelFacts& m_;
};

void list_parameters(ModelFacts& m, bool qkv_bias, bool out_bias, bool mlp_bias) {
  Listing list(m);
  m.params.push_back({"model.embed_tokens.weight", {m.vocab, m.hidden}});
  const int64_t q = m.heads * m.head_dim, k = m.kv_heads * m.head_dim;
  for (int64_t i = 0; i < m.layers; ++i) {
    const std::string layer = str("model.layers.", i), attention = layer + ".self_attn";
    list.plain(layer + ".input_layernorm.weight", m.hidden);
    list.linear(attention + ".q_proj", m.hidden, q, qkv_bias);
    list.linear(attention + ".k_proj", m.hidden, k, qkv_bias);
    list.linear(attention + ".v_proj", m.hidden, k, qkv_bias);
    list.linear(attention + ".o_proj", q, m.hidden, out_bias);
    if (m.qk_norm)
      list.plain(attention + ".q_norm.weight", m.head_dim), list.plain(attention + ".k_norm.weight", m.head_dim);
    list.plain(layer + ".post_attention_layernorm.weight", m.hidden);
    if (m.sparse[static_cast<size_t>(i)])
      list.experts(layer + ".mlp");
    else
      list.feed_forward(layer + ".mlp", m.ffn, mlp_bias);
  }
  list.plain("model.norm.weight", m.hidden);
  if (!m.tied) list.linear("lm_head", m.hidden, m.vocab, false);
}

void read_experts(const Config& c, ModelFacts& m) {
  m.sparse.assign(static_cast<size_t>(m.layers), false);
  if (!m.type.ends_with("_moe")) return;
  m.experts = c.find("num_experts") ? c.integer("num_experts") : c.integer("num_local_experts");
  if (m.experts == 0) return;  // every layer is dense
  m.per_token = c.integer("num_experts_per_tok", m.type == "qwen2_moe" ? 4 : 8);
  m.expert_ffn = c.integer("moe_intermediate_size");
  if (m.type == "qwen2_moe") m.shared_ffn = c.integer("shared_expert_intermediate_size");
  require(m.experts > 0 && m.per_token > 0 && m.per_token <= m.experts && m.expert_ffn > 0, Fault::Model,
          "config.json: the numbers of the experts make no sense");
  const int64_t step = std::max<int64_t>(1, c.integer("decoder_sparse_step", 1));
  const auto dense = c.integers("mlp_only_layers");
  for (int64_t i = 0; i < m.layers; ++i)
    m.sparse[static_cast<size_t>(i)] = (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end();
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
  require(config.is_object(), Fault::Model, "config.json must hold an object");
  const Config c(config);
  ModelFacts m;
  m.type = c.text("model_type", "");
  const Family& family = family_of(m.type);
  require(!config.contains("quantization_config") || config.at("quantization_config").is_null(), Fault::Model,
          "config.json: the weights are quantised (quantization_config), which this version cannot load; take the "
          "model's bfloat16 release");
  m.dtype = c.text("torch_dtype", c.text("dtype", ""));
  m.layers = c.integer("num_hidden_layers"), m.hidden = c.integer("hidden_size");
  m.ffn = family.ffn > 0 ? c.integer("intermediate_size", family.ffn) : c.integer("intermediate_size");
  m.heads = c.integer("num_attention_heads");
  const bool unsaid = !config.contains("num_key_value_heads") && family.kv_heads > 0;
  m.kv_heads = unsaid ? std::min(family.kv_heads, m.heads) : c.integer("num_key_value_heads", m.heads);
  m.vocab = c.integer("vocab_size"), m.positions = c.integer("max_position_embeddings", family.positions);
  require(m.layers > 0 && m.layers <= 4096 && m.hidden > 0 && m.heads > 0 && m.kv_heads > 0 && m.vocab > 0 && m.ffn > 0,
          Fault::Model, "config.json: layers, hidden_size, heads, intermediate_size and vocab_size must be above 0");
  m.head_dim = c.integer("head_dim", family.head_dim > 0 ? family.head_dim : m.hidden / m.heads);
  m.tied = c.flag("tie_word_embeddings", false), m.qk_norm = family.qk_norm;
  read_experts(c, m);
  using Bias = Family::Bias;
  const bool asked = family.bias == Bias::Asked && c.flag("attention_bias", false);
  const bool qkv = family.bias == Bias::Qkv || (family.bias == Bias::QkvUnlessDenied && c.flag("qkv_bias", true));
  list_parameters(m, asked || qkv, asked, family.mlp_bias_counts && c.flag("mlp_bias", false));
  return m;
}

}  // namespace apus
