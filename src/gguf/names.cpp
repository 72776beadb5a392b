// SPDX-License-Identifier: Apache-2.0
#include "gguf/names.h"

#include <algorithm>
#include <string_view>

#include "gguf/turns.h"

namespace apus {

namespace {

const std::vector<GgufPair>& usual_names() {
  static const std::vector<GgufPair> all = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"self_attn.q_a_proj", "attn_q_a"},
      {"self_attn.q_a_layernorm", "attn_q_a_norm"},
      {"self_attn.q_b_proj", "attn_q_b"},
      {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
      {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"mlp.gate", "ffn_gate_inp"},
      {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
      {"mlp.experts.*.gate_proj", "ffn_gate_exps"},
      {"mlp.experts.*.up_proj", "ffn_up_exps"},
      {"mlp.experts.*.down_proj", "ffn_down_exps"},
      {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
      {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
      {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
      {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
  };
  return all;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 9 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "blk.3.attn_q.bias" -> layer "3", name "attn_q.bias"
struct InLayer {
  std::string layer, name;
};
InLayer in_layer(const std::string& name, std::string_view layers) {
  if (!name.starts_with(layers)) return {"", name};
  const std::string inside = name.substr(layers.size());
  const size_t dot = inside.find('.');
  if (dot == std::string::npos || !is_number(inside.substr(0, dot))) return {"", name};
  return {inside.substr(0, dot), inside.substr(dot + 1)};
}

// ".weight" and ".bias"; empty: neither.
std::string ending_of(const std::string& name) {
  for (const char* ending : {".weight", ".bias"})
    if (name.ends_with(ending)) return ending;
  return "";
}

// The number of an expert, or of a head's norm, out of a name; * takes its place.
int64_t take_expert(std::string& name) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    const size_t begin = dot + 1, end = std::min(name.find('.', begin), name.size());
    if (!is_number(name.substr(begin, end - begin))) continue;
    const int64_t expert = std::stoll(name.substr(begin, end - begin));
    name = name.substr(0, begin) + "*" + name.substr(end);
    return expert;
  }
  return -1;
}

GgufTurn turn_of(const GgufPair& pair, const std::string& gguf, const GgufForm& form) {
  GgufTurn turn = pair.turn;
  if (form.neighbours && !turn.rows && pair.gguf == "attn_q") turn.rows = neighbours_of_queries;
  if (form.neighbours && !turn.rows && pair.gguf == "attn_k") turn.rows = neighbours_of_keys;
  if (form.from_one && gguf.ends_with("norm.weight") && !gguf.starts_with("ssm_"))
    turn.numbers = GgufTurn::Numbers::FromOne;
  return turn;
}

// Every pair of this name, whole or without its ending: the family's own first, and then none of the usual ones.
template <class Found>
void each_pair(const GgufForm& form, const std::string& name, std::string GgufPair::*side, const Found& found) {
  const std::string ending = ending_of(name), stem = name.substr(0, name.size() - ending.size());
  bool any = false;
  for (const std::vector<GgufPair>* pairs : {&form.names, &usual_names()}) {
    if (pairs != &form.names && !form.language) return;
    for (const GgufPair& pair : *pairs) {
      const bool whole = pair.*side == name;
      if ((!whole && (ending.empty() || pair.*side != stem)) || (pair.only_read && side == &GgufPair::hf)) continue;
      // A whole name on one side is a whole name on the other.
      const std::string& other = side == &GgufPair::hf ? pair.gguf : pair.hf;
      any = true;
      found(pair, whole ? other : other + ending);
    }
    if (any) return;
  }
}

}  // namespace

std::optional<GgufPlace> place_in_checkpoint(const std::string& gguf, const GgufForm& form) {
  const InLayer in = in_layer(gguf, form.file_layers);
  std::optional<GgufPlace> place;
  each_pair(form, in.name, &GgufPair::gguf, [&](const GgufPair& pair, const std::string& hf) {
    if (place) return;
    place = {in.layer.empty() ? hf : form.layers + in.layer + "." + hf, -1, turn_of(pair, in.name, form)};
  });
  return place;
}

std::vector<GgufPlace> places_in_file(const std::string& hf, const GgufForm& form) {
  InLayer in = in_layer(hf, form.layers);
  const int64_t expert = form.language ? take_expert(in.name) : -1;
  std::vector<GgufPlace> places;
  each_pair(form, in.name, &GgufPair::hf, [&](const GgufPair& pair, const std::string& gguf) {
    const std::string name = in.layer.empty() ? gguf : form.file_layers + in.layer + "." + gguf;
    places.push_back({name, expert, turn_of(pair, gguf, form)});
  });
  return places;
}

}  // namespace apus
