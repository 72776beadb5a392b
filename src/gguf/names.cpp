// SPDX-License-Identifier: Apache-2.0
#include "gguf/names.h"

#include <algorithm>

#include "base/error.h"

namespace apus {

namespace {

constexpr GgufPair kNormsAround[] = {{"post_attention_layernorm", "post_attention_norm"},
                                     {"pre_feedforward_layernorm", "ffn_norm"},
                                     {"post_feedforward_layernorm", "post_ffw_norm"}};
constexpr GgufPair kFusedNames[] = {{"self_attn.qkv_proj", "attn_qkv"}, {"mlp.gate_up_proj", "ffn_up"}};
constexpr GgufPair kGlmNames[] = {{"post_self_attn_layernorm", "post_attention_norm"},
                                  {"post_attention_layernorm", "ffn_norm"},
                                  {"post_mlp_layernorm", "post_ffw_norm"},
                                  {"mlp.gate_up_proj", "ffn_up"}};
constexpr GgufPair kPlainNames[] = {{"mlp.c_fc", "ffn_up"}, {"mlp.c_proj", "ffn_down"}};
constexpr GgufPair kHunyuanNames[] = {{"self_attn.query_layernorm", "attn_q_norm"},
                                      {"self_attn.key_layernorm", "attn_k_norm"},
                                      {"mlp.gate.wg", "ffn_gate_inp"},
                                      {"mlp.shared_mlp.gate_proj", "ffn_gate_shexp"},
                                      {"mlp.shared_mlp.up_proj", "ffn_up_shexp"},
                                      {"mlp.shared_mlp.down_proj", "ffn_down_shexp"}};
constexpr GgufPair kSeedNames[] = {{"post_attention_layernorm", "post_attention_norm"}};

constexpr GgufKey kGemma2Keys[] = {{"attn_logit_softcapping", "attn_logit_softcapping", false},
                                   {"final_logit_softcapping", "final_logit_softcapping", false},
                                   {"sliding_window", "attention.sliding_window", true}};
constexpr GgufKey kGemma3Keys[] = {{"final_logit_softcapping", "final_logit_softcapping", false},
                                   {"sliding_window", "attention.sliding_window", true}};
constexpr GgufKey kPhi3Keys[] = {{"sliding_window", "attention.sliding_window", true},
                                 {"original_max_position_embeddings", "rope.scaling.original_context_length", true}};
constexpr GgufKey kGraniteKeys[] = {{"attention_multiplier", "attention.scale", false},
                                    {"embedding_multiplier", "embedding_scale", false},
                                    {"residual_multiplier", "residual_scale", false},
                                    {"logits_scaling", "logit_scale", false}};
constexpr GgufKey kCohere2Keys[] = {{"logit_scale", "logit_scale", false},
                                    {"sliding_window", "attention.sliding_window", true},
                                    {"vocab_size", "vocab_size", true}};
constexpr GgufKey kExaone4Keys[] = {{"sliding_window", "attention.sliding_window", true},
                                    {"vocab_size", "vocab_size", true}};
constexpr GgufKey kStarcoder2Keys[] = {{"sliding_window", "attention.sliding_window", true}};
// Of norms that take the mean off.
constexpr const char* kEpsilon = "attention.layer_norm_epsilon";

// The largest model of either generation divides scores by another number than the size of a head.
int64_t gemma_scale(const GgufSizes& s, int64_t layers_of_largest) {
  return s.layers == layers_of_largest ? s.hidden / s.heads : s.head_dim;
}
Json gemma2_constants(const GgufSizes& s) {
  return {{"hidden_activation", "gelu_pytorch_tanh"}, {"query_pre_attn_scalar", gemma_scale(s, 46)}};
}
Json gemma3_constants(const GgufSizes& s) {
  return {{"hidden_activation", "gelu_pytorch_tanh"},
          {"query_pre_attn_scalar", gemma_scale(s, 62)},
          {"rope_local_base_freq", 10000.0},
          {"sliding_window_pattern", 6}};
}
// Only the largest model looks back through windows.
Json exaone4_constants(const GgufSizes& s) {
  if (s.layers == 64) return {{"sliding_window_pattern", 4}};
  return {{"sliding_window", nullptr}};
}
Json starcoder2_constants(const GgufSizes&) { return {{"hidden_act", "gelu_pytorch_tanh"}, {"use_bias", true}}; }
Json smollm3_constants(const GgufSizes&) { return {{"no_rope_layer_interval", 4}}; }

const GgufFamily kFamilies[] = {
    {.architecture = "llama", .model_type = "llama", .class_name = "LlamaForCausalLM", .neighbours = true},
    {.architecture = "llama", .model_type = "mistral", .class_name = "MistralForCausalLM", .neighbours = true},
    {.architecture = "qwen2", .model_type = "qwen2", .class_name = "Qwen2ForCausalLM"},
    {.architecture = "qwen3", .model_type = "qwen3", .class_name = "Qwen3ForCausalLM"},
    {.architecture = "qwen2moe", .model_type = "qwen2_moe", .class_name = "Qwen2MoeForCausalLM", .experts = true},
    {.architecture = "qwen3moe",
     .model_type = "qwen3_moe",
     .class_name = "Qwen3MoeForCausalLM",
     .experts = true,
     .normalised_experts = true},
    {.architecture = "gemma2",
     .model_type = "gemma2",
     .class_name = "Gemma2ForCausalLM",
     .names = kNormsAround,
     .keys = kGemma2Keys,
     .constants = gemma2_constants,
     .shift = 1},
    {.architecture = "gemma3",
     .model_type = "gemma3_text",
     .class_name = "Gemma3ForCausalLM",
     .names = kNormsAround,
     .keys = kGemma3Keys,
     .constants = gemma3_constants,
     .shift = 1},
    {.architecture = "phi3",
     .model_type = "phi3",
     .class_name = "Phi3ForCausalLM",
     .names = kFusedNames,
     .keys = kPhi3Keys,
     .two_factor_sets = true,
     .turns_in_part = true},
    {.architecture = "smollm3",
     .model_type = "smollm3",
     .class_name = "SmolLM3ForCausalLM",
     .constants = smollm3_constants,
     .neighbours = true},
    {.architecture = "olmo2", .model_type = "olmo2", .class_name = "Olmo2ForCausalLM", .names = kNormsAround},
    {.architecture = "granite",
     .model_type = "granite",
     .class_name = "GraniteForCausalLM",
     .keys = kGraniteKeys,
     .neighbours = true},
    {.architecture = "glm4",
     .model_type = "glm4",
     .class_name = "Glm4ForCausalLM",
     .names = kGlmNames,
     .turns_in_part = true},
    {.architecture = "seed_oss", .model_type = "seed_oss", .class_name = "SeedOssForCausalLM", .names = kSeedNames},
    {.architecture = "ernie4_5", .model_type = "ernie4_5", .class_name = "Ernie4_5ForCausalLM"},
    {.architecture = "starcoder2",
     .model_type = "starcoder2",
     .class_name = "Starcoder2ForCausalLM",
     .names = kPlainNames,
     .keys = kStarcoder2Keys,
     .eps = {"norm_epsilon", kEpsilon, false},
     .constants = starcoder2_constants},
    {.architecture = "cohere2",
     .model_type = "cohere2",
     .class_name = "Cohere2ForCausalLM",
     .keys = kCohere2Keys,
     .eps = {"layer_norm_eps", kEpsilon, false},
     .turns_in_part = true},
    {.architecture = "exaone4",
     .model_type = "exaone4",
     .class_name = "Exaone4ForCausalLM",
     .names = kNormsAround,
     .keys = kExaone4Keys,
     .constants = exaone4_constants},
    {.architecture = "hunyuan-dense",
     .model_type = "hunyuan_v1_dense",
     .class_name = "HunYuanDenseV1ForCausalLM",
     .names = kHunyuanNames},
    {.architecture = "hunyuan-moe",
     .model_type = "hunyuan_v1_moe",
     .class_name = "HunYuanMoEV1ForCausalLM",
     .names = kHunyuanNames,
     .experts = true,
     .normalised_experts = true,
     .experts_per_token = "moe_topk"},
};

constexpr GgufPair kOutside[] = {
    {"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}};
constexpr GgufPair kInLayer[] = {{"input_layernorm", "attn_norm"},
                                 {"post_attention_layernorm", "ffn_norm"},
                                 {"self_attn.q_proj", "attn_q"},
                                 {"self_attn.k_proj", "attn_k"},
                                 {"self_attn.v_proj", "attn_v"},
                                 {"self_attn.o_proj", "attn_output"},
                                 {"self_attn.q_norm", "attn_q_norm"},
                                 {"self_attn.k_norm", "attn_k_norm"},
                                 {"mlp.gate_proj", "ffn_gate"},
                                 {"mlp.up_proj", "ffn_up"},
                                 {"mlp.down_proj", "ffn_down"},
                                 {"mlp.gate", "ffn_gate_inp"},
                                 {"mlp.experts.*.gate_proj", "ffn_gate_exps"},
                                 {"mlp.experts.*.up_proj", "ffn_up_exps"},
                                 {"mlp.experts.*.down_proj", "ffn_down_exps"},
                                 {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                 {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                 {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                                 {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"}};

constexpr std::string_view kHfLayer = "model.layers.", kGgufLayer = "blk.";

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 9 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "blk.3.attn_q.bias" -> layer "3", rest "attn_q", ending ".bias"
struct Parts {
  std::string_view layer, rest, ending;
  bool good = false;
};
Parts parts_of(std::string_view name, std::string_view layers) {
  Parts p;
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return p;
  p.ending = name.substr(dot), p.rest = name.substr(0, dot);
  if (p.ending != ".weight" && p.ending != ".bias") return p;
  p.good = true;
  if (!p.rest.starts_with(layers)) return p;
  const std::string_view inside = p.rest.substr(layers.size());
  const size_t end = inside.find('.');
  p.good = end != std::string_view::npos && is_number(inside.substr(0, end));
  if (p.good) p.layer = inside.substr(0, end), p.rest = inside.substr(end + 1);
  return p;
}

// The family's own names first.
const GgufPair* pair_of(const GgufFamily& family, std::string_view name, std::string_view GgufPair::*side) {
  for (const GgufPair& pair : family.names)
    if (pair.*side == name) return &pair;
  for (const GgufPair& pair : kInLayer)
    if (pair.*side == name) return &pair;
  return nullptr;
}

std::string list_of(const char* GgufFamily::*name) {
  std::string out;
  for (const GgufFamily& family : kFamilies)
    if (const std::string each = family.*name; (", " + out + ",").find(", " + each + ",") == std::string::npos)
      out += (out.empty() ? "" : ", ") + each;
  return out;
}

}  // namespace

const GgufFamily& family_of_architecture(const std::string& architecture, const std::string& where) {
  for (const GgufFamily& family : kFamilies)
    if (architecture == family.architecture) return family;
  fail(Fault::Model, where, ": the architecture '", architecture.substr(0, 100),
       "' is not read from GGUF files; these are: ", list_of(&GgufFamily::architecture),
       ". Other models are read as HuggingFace folders");
}

const GgufFamily& family_of_model_type(const std::string& model_type, const std::string& where) {
  for (const GgufFamily& family : kFamilies)
    if (model_type == family.model_type) return family;
  fail(Fault::Model, where, ": models of type '", model_type,
       "' are not written as GGUF; these are: ", list_of(&GgufFamily::model_type));
}

std::string hf_name(const std::string& gguf, const GgufFamily& family) {
  const Parts p = parts_of(gguf, kGgufLayer);
  if (!p.good) return "";
  if (p.layer.empty()) {
    for (const GgufPair& pair : kOutside)
      if (p.rest == pair.gguf) return str(pair.hf, p.ending);
    return "";
  }
  const GgufPair* const pair = pair_of(family, p.rest, &GgufPair::gguf);
  return pair ? str(kHfLayer, p.layer, ".", pair->hf, p.ending) : "";
}

GgufPlace gguf_name(const std::string& hf, const GgufFamily& family) {
  const Parts p = parts_of(hf, kHfLayer);
  if (!p.good) return {};
  if (p.layer.empty()) {
    for (const GgufPair& pair : kOutside)
      if (p.rest == pair.hf) return {str(pair.gguf, p.ending)};
    return {};
  }
  std::string rest(p.rest);
  int64_t expert = -1;
  constexpr std::string_view kExperts = "mlp.experts.";
  if (rest.starts_with(kExperts)) {
    const size_t end = rest.find('.', kExperts.size());
    const std::string number = rest.substr(kExperts.size(), end - kExperts.size());
    if (end == std::string::npos || !is_number(number)) return {};
    expert = std::stoll(number);
    rest = str(kExperts, "*", rest.substr(end));
  }
  const GgufPair* const pair = pair_of(family, rest, &GgufPair::hf);
  if (!pair) return {};
  return {str(kGgufLayer, p.layer, ".", pair->gguf, p.ending), expert};
}

int shift_of(const std::string& gguf, const GgufFamily& family) {
  return gguf.ends_with("norm.weight") ? family.shift : 0;
}

}  // namespace apus
