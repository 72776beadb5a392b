// SPDX-License-Identifier: Apache-2.0
#include "gguf/names.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"

namespace apus {

namespace {

constexpr std::array<GgufFamily, 6> kFamilies{
    {{.architecture = "llama", .model_type = "llama", .class_name = "LlamaForCausalLM", .neighbours = true},
     {.architecture = "llama", .model_type = "mistral", .class_name = "MistralForCausalLM", .neighbours = true},
     {.architecture = "qwen2", .model_type = "qwen2", .class_name = "Qwen2ForCausalLM"},
     {.architecture = "qwen3", .model_type = "qwen3", .class_name = "Qwen3ForCausalLM"},
     {.architecture = "qwen2moe", .model_type = "qwen2_moe", .class_name = "Qwen2MoeForCausalLM", .experts = true},
     {.architecture = "qwen3moe",
      .model_type = "qwen3_moe",
      .class_name = "Qwen3MoeForCausalLM",
      .experts = true,
      .normalised_experts = true}}};

struct Pair {
  std::string_view hf, gguf;
};
constexpr std::array<Pair, 3> kOutside{
    {{"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}}};
constexpr std::array<Pair, 19> kInLayer{{{"input_layernorm", "attn_norm"},
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
                                         {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"}}};

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

std::string hf_name(const std::string& gguf) {
  const Parts p = parts_of(gguf, kGgufLayer);
  if (!p.good) return "";
  if (p.layer.empty()) {
    for (const Pair& pair : kOutside)
      if (p.rest == pair.gguf) return str(pair.hf, p.ending);
    return "";
  }
  for (const Pair& pair : kInLayer)
    if (p.rest == pair.gguf) return str(kHfLayer, p.layer, ".", pair.hf, p.ending);
  return "";
}

GgufPlace gguf_name(const std::string& hf) {
  const Parts p = parts_of(hf, kHfLayer);
  if (!p.good) return {};
  if (p.layer.empty()) {
    for (const Pair& pair : kOutside)
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
  for (const Pair& pair : kInLayer)
    if (rest == pair.hf) return {str(kGgufLayer, p.layer, ".", pair.gguf, p.ending), expert};
  return {};
}

}  // namespace apus
