// SPDX-License-Identifier: Apache-2.0
#include "plan/tuning_facts.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/nearest.h"
#include "base/pattern.h"
#include "checkpoint/adapter_config.h"
#include "models/spec/seeing_spec.h"
#include "quant/wish.h"

namespace apus {
namespace {

bool begins_with_any(const std::string& name, const std::vector<std::string>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(), [&](const std::string& b) { return name.rfind(b, 0) == 0; });
}

// The rules of --freeze_parameters and its kin, in their order.
class Freezing {
 public:
  Freezing(const TuningSpec& s, double total) : s_(s), limit_(total * s.freeze_ratio) {
    if (s.freeze_regex) frozen_ = Pattern(*s.freeze_regex, "--freeze_parameters_regex");
    if (s.train_regex) trained_ = Pattern(*s.train_regex, "--trainable_parameters_regex");
  }
  bool trains(const ParamFacts& p) {
    seen_ += static_cast<double>(p.numel());
    if (begins_with_any(p.name, s_.train) || (trained_ && trained_->found_in(p.name))) return true;
    if (begins_with_any(p.name, s_.freeze) || (frozen_ && frozen_->found_in(p.name))) return false;
    return seen_ > limit_;
  }

 private:
  const TuningSpec& s_;
  double limit_, seen_ = 0;
  std::optional<Pattern> frozen_, trained_;
};

LoraConfig lora_config(const ModelFacts& model, const TuningSpec& s) {
  LoraConfig c;
  c.kind = s.kind, c.boft = s.boft, c.fourier = s.fourier, c.prompt = s.prompt, c.dora = s.dora;
  c.r = s.rank, c.target_regex = s.target_regex, c.target_parameters = s.target_parameters;
  c.token_rows = s.token_rows;
  c.target_modules = target_suffixes(s.target_modules, model.linear_modules());
  const bool all = std::find(s.target_modules.begin(), s.target_modules.end(), "all-linear") != s.target_modules.end();
  if (model.seeing && all && c.target_regex.empty())
    c.target_regex = all_linear_expression(*model.seeing, s.groups, model.linear_modules());
  if (c.kind == "ia3") c.feedforward_regex = scaled_inputs_expression(model.linear_modules());
  if (c.kind == "adapter") c.target_regex = feed_forward_expression(model.linear_modules());
  std::vector<std::string> modules, free;
  for (const ParamFacts& p : model.params) {
    modules.push_back(p.module());
    if (!model.seeing || !is_frozen(*model.seeing, s.groups, p.name)) free.push_back(p.module());
  }
  c.modules_to_save = saved_suffixes(s.modules_to_save, modules);
  if (c.kind == "ln_tuning" && s.target_regex.empty()) aim_at_norms(c, s.target_modules, free, model.seeing != nullptr);
  return c;
}

// Where in its layer a linear layer stands: by the last part of its name. A matrix that does the work of several stands
// in the place of each.
void place(LayerUse& layer, const std::string& module, LinearUse use) {
  const size_t dot = module.rfind('.'), before = module.rfind('.', dot - 1);
  const std::string last = module.substr(dot + 1), block = module.substr(before + 1, dot - before - 1);
  const std::vector<LinearUse*> qkv = {&layer.q, &layer.k, &layer.v}, in = {&layer.gate, &layer.up},
                                out = {&layer.down};
  const std::map<std::string, std::vector<LinearUse*>> places = {
      {"q_proj", {&layer.q}},
      {"k_proj", {&layer.k}},
      {"v_proj", {&layer.v}},
      {"o_proj", {&layer.o}},
      {"gate_proj", {&layer.gate}},
      {"up_proj", {&layer.up}},
      {"down_proj", out},
      {"gate_up_proj", in},
      // One matrix for queries, keys and values; and feed-forwards without a gate: as families call them.
      {"qkv_proj", qkv},
      {"query_key_value", qkv},
      {"c_attn", qkv},
      {"Wqkv", qkv},
      {"wqkv", qkv},
      {"W_pack", qkv},
      {"att_proj", qkv},
      {"attn_out", {&layer.o}},
      {"ff_proj", in},
      {"ff_out", out},
      {"dense", {&layer.o}},
      {"out_proj", {&layer.o}},
      {"wo", {&layer.o}},
      {"c_fc", in},
      {"fc1", in},
      {"fc_in", in},
      {"dense_h_to_4h", in},
      {"fc2", out},
      {"fc_out", out},
      {"dense_4h_to_h", out},
      {"w1", {&layer.gate}},
      {"w3", {&layer.up}},
      {"w2", out},
      {"c_proj", block == "attn" ? std::vector<LinearUse*>{&layer.o} : out}};
  const auto found = places.find(last);
  if (found == places.end()) return;
  if (last == "gate_up_proj" || last == "ff_proj") use.out /= 2;
  for (LinearUse* each : found->second) *each = use;
}

// Factors on the embedding, and on each expert's matrices, which are stacked in one parameter.
double other_factors(const ModelFacts& model, const ParamFacts& p, const LoraConfig& lora) {
  const std::string module = p.module();
  if (lora.kind == "prompt_tuning" && module == model.embedding)
    return static_cast<double>(lora.prompt.words * p.shape[1]);
  const auto rank = [&](const std::string& name) {
    return static_cast<double>(lora.targets(name) ? lora.rank_of(name) : 0);
  };
  if (module == model.embedding) return rank(module) * static_cast<double>(p.shape[0] + p.shape[1]);
  if (p.pieces.empty()) return 0;
  const auto experts = static_cast<double>(p.shape[0]);
  const int64_t in = p.shape.back(), out = p.shape[p.shape.size() - 2];  // of one piece
  double ranks = 0, elements = 0;
  for (const std::string& piece : p.pieces) {
    const std::string name = str(module, ".0.", piece);
    if (!lora.targets(name)) continue;
    ranks += rank(name), elements += static_cast<double>(change_elements(lora, name, in, out));
  }
  const bool shared =
      ranks > 0 && p.pieces.size() == 2 && lora.stacks(str(module, ".0.", p.pieces[0]));  // one A for gate and up
  return experts * (elements - (shared ? ranks / 2 * static_cast<double>(in) : 0));
}

int64_t layer_index(const ModelFacts& model, const std::string& name) {
  const std::string& prefix = model.layer;
  return name.rfind(prefix, 0) == 0 ? std::stoll(name.substr(prefix.size())) : -1;
}

bool may_be_held(const ParamFacts& p, bool experts) {
  if (p.stacked) return experts && !p.pieces.empty();
  return p.linear && !quant::Wish().skips(p.module());
}

}  // namespace

double quantisable_elements(const ModelFacts& model, bool experts) {
  double sum = 0;
  for (const ParamFacts& p : model.params) sum += may_be_held(p, experts) ? static_cast<double>(p.numel()) : 0;
  return sum;
}

TuningFacts tuning_facts(const ModelFacts& model, const TuningSpec& spec, const StageFacts& stage) {
  TuningFacts t;
  t.spec = spec;
  t.layers.resize(static_cast<size_t>(model.layers));
  for (size_t i = 0; i < t.layers.size(); ++i) t.layers[i].sparse = model.sparse[i], t.layers[i].keeps = model.keeps[i];
  Freezing freezing(spec, static_cast<double>(model.parameters()));
  const LoraConfig lora = lora_config(model, spec);
  const std::string tower_layers =
      model.seeing ? str(model.seeing->vision.name, ".", model.seeing->vision.names.blocks, ".") : " ";
  for (const ParamFacts& p : model.params) {
    const auto n = static_cast<double>(p.numel());
    const std::string module = p.module();
    const bool frozen =
        model.seeing && is_frozen(*model.seeing, spec.groups, p.name) && !begins_with_any(p.name, spec.train);
    const int64_t i = layer_index(model, p.name);
    const bool rests = spec.trained_layers > 0 && i >= spec.trained_layers;  // which ones they are changes
    const bool trained = spec.lora ? lora.saves(module) : freezing.trains(p) && !frozen && !rests;
    const int64_t rank = spec.lora && p.linear && !trained && lora.targets(module) ? lora.rank_of(module) : 0;
    double factors = 0;
    if (rank > 0)
      factors = static_cast<double>(change_elements(lora, module, p.shape[1], p.shape[0]));
    else if (spec.lora && !trained && !p.linear)
      factors = other_factors(model, p, lora);
    const auto rows = static_cast<double>(spec.lora && p.shape.size() == 2 ? lora.rows_of(module).size() : 0);
    const bool embedding = module == model.embedding;
    const bool here = i >= 0      ? i >= stage.begin && i < stage.end
                      : p.tower   ? stage.embedding
                      : embedding ? stage.table
                                  : stage.head;
    if (!here) continue;
    t.elements += n, t.adapter += factors + (rows > 0 ? rows * static_cast<double>(p.shape[1]) : 0);
    t.tower_trained |= (trained || factors > 0) && p.name.starts_with(tower_layers);
    if (p.stacked) t.of_experts += factors + (trained ? n : 0);
    const bool held = !trained && may_be_held(p, spec.holds_experts);
    if (held) t.linear += n;
    if (held && p.stacked) t.largest_held_stack = std::max(t.largest_held_stack, n);
    if (trained) {
      t.trained += n, t.largest_trained = std::max(t.largest_trained, n);
      if (p.shape.size() >= 2 && i >= 0) t.trained_matrices += n;
      if (p.shape.size() == 2 && i >= 0 && !p.stacked) ++t.trained_shapes[{p.shape[0], p.shape[1]}];
    }
    t.embedding_trained |= trained && embedding && stage.embedding;
    t.head_trained |= trained && stage.head && (module == "lm_head" || (model.tied && embedding));
    if (i < 0) continue;
    LayerUse& layer = t.layers[static_cast<size_t>(i)];
    layer.elements += n, layer.adapter += factors;
    if (trained) layer.trained += n, layer.largest_trained = std::max(layer.largest_trained, n);
    if (p.stacked) layer.experts_trained |= trained;
    if (!p.linear) continue;
    place(layer, module, {p.shape[1], p.shape[0], trained, rank});
  }
  for (LayerUse& layer : t.layers)  // up_proj and down_proj alone
    if (layer.gate.out == 0) layer.gate = layer.up;
  const auto layer_at = [&](int64_t i) { return t.layers.begin() + std::min(i, model.layers); };
  t.layers.erase(layer_at(stage.end), t.layers.end());
  t.layers.erase(t.layers.begin(), layer_at(stage.begin));
  const bool whole = stage.embedding && stage.head;  // a stage may have nothing to train
  require(t.trained + t.adapter > 0 || !whole, Fault::Usage,
          spec.lora ? "--target_modules means no layer of this model; it has "
                    : "nothing is left to train: every parameter is frozen",
          spec.lora ? join(all_linear_suffixes(model.linear_modules())) : "");
  return t;
}

}  // namespace apus
