// SPDX-License-Identifier: Apache-2.0
// adapter_config.json as PEFT writes it, and which modules it means.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/pattern.h"
#include "checkpoint/adapter_kinds.h"
#include "models/spec/score_head.h"

namespace apus {

struct LoraConfig {
  std::string base_model;  // base_model_name_or_path
  int64_t r = 8;
  double alpha = 32, dropout = 0;
  bool rslora = false, dora = false;
  bool lora_bias = false;                   // the second factors have biases
  std::string bias = "none";                // none, all, lora_only
  std::vector<std::string> target_modules;  // suffixes or whole names
  std::string target_regex;                 // wins over the list; the whole name must match
  // Ends of names of stacked weights of experts (mlp.experts.gate_up_proj): each expert has factors of its own, of
  // which gate and up share the first. Experts follow this list alone where there is one: to PEFT
  // they are no layers.
  std::vector<std::string> target_parameters;
  std::vector<std::string> exclude_modules;
  std::string exclude_regex;
  std::vector<std::string> modules_to_save;  // ends of names of modules trained whole
  // trainable_token_indices: end of an embedding's or head's name (empty: the inputs' table) -> rows of its weight, and
  // of what is tied to it, that the adapter replaces.
  std::map<std::string, std::vector<int64_t>> token_rows;
  std::vector<int64_t> layers_to_transform;                   // empty: all
  std::vector<std::string> layers_pattern;                    // the part of a name before a layer's number; empty: any
  std::vector<std::pair<std::string, int64_t>> rank_pattern;  // name or expression -> rank; the first that fits
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::string init = "true";  // init_lora_weights
  std::string task_type = "CAUSAL_LM";
  std::string kind = "lora";  // of adapter_kinds()
  AdaLoraSettings adalora;
  BoftSettings boft;
  FourierSettings fourier;
  VeraSettings vera;
  PromptSettings prompt;
  // IA3: layers whose inputs are scaled, by the ends of their names, or an expression for the whole name.
  std::vector<std::string> feedforward_modules;
  std::string feedforward_regex;
  bool old_bone = false;  // under the names that PEFT had for it before
  // AdaLoRA: layers whose file holds other ranks than `r`.
  std::map<std::string, int64_t> ranks_left;
  std::string act = "gelu";  // kind adapter: bottleneck_acts()
  int64_t width = 0;         // of what it is behind

  bool targets(const std::string& module) const;
  bool stacks(const std::string& module) const;         // target_parameters, for the matrix of one expert
  bool saves(const std::string& module) const;          // modules_to_save
  bool scales_inputs(const std::string& module) const;  // feedforward_modules
  int64_t rank_of(const std::string& module) const;
  double alpha_of(const std::string& module) const;
  std::vector<int64_t> rows_of(const std::string& module) const;  // token_rows
};

// The matrix of one expert, as part of what transformers keeps stacked.
struct ExpertMatrix {
  std::string experts;  // "model.layers.0.mlp.experts"
  int64_t expert = 0;
  std::string side;  // gate_proj, up_proj, down_proj
  std::string stack() const { return side == "down_proj" ? side : "gate_up_proj"; }
  std::string parameter() const { return experts + "." + stack(); }
};
// Of "model.layers.0.mlp.experts.3.up_proj"; nothing for other modules.
std::optional<ExpertMatrix> expert_matrix(const std::string& module);

// PEFT calls a layer with factors `<module>.base_layer` where it saves the layer's own parameters: its bias, the table
// of an embedding. Such a name without that part.
std::string without_base_layer(const std::string& parameter);

// Where an adapter's own files are: the folder, or default/ in it (kind adapter).
std::filesystem::path adapter_folder(const std::filesystem::path& dir, const LoraConfig& config);
std::filesystem::path adapter_folder(const std::filesystem::path& dir);
// What --trainable_token_indices says, as LoraConfig::token_rows: ids and texts of tokens, a JSON list of them, or a
// JSON object of a module's name to such a list.
std::map<std::string, std::vector<int64_t>> listed_token_rows(const std::vector<std::string>& words,
                                                              const std::function<int64_t(const std::string&)>& id_of);

bool is_adapter_dir(const std::filesystem::path& dir);
// Fault::Model for what is no adapter of a known kind or uses a feature that is not supported, naming it.
LoraConfig read_adapter_config(const std::filesystem::path& dir);
// What a head of so many labels is for, that an adapter brings: as its files and its run's arguments say.
ScoreHead head_of_adapter(const std::filesystem::path& dir, int64_t labels);
Json adapter_config_json(const LoraConfig& config);

// "all-linear" of these linear layers: their last name parts, without the head and the routers, sorted.
std::vector<std::string> all_linear_suffixes(const std::vector<std::string>& linear_modules);

// The words of --target_modules as parts of names: all-linear as above, all-embedding, all-router.
std::vector<std::string> target_suffixes(const std::vector<std::string>& words,
                                         const std::vector<std::string>& linear_modules);

// The words of --modules_to_save likewise: all-norm, all-embedding. `modules`: names of all that the model has.
std::vector<std::string> saved_suffixes(const std::vector<std::string>& words, const std::vector<std::string>& modules);
// kind ln_tuning with --target_modules all-linear: these norms, by whole names where not all of a model are meant.
void aim_at_norms(LoraConfig& config, const std::vector<std::string>& words, const std::vector<std::string>& modules,
                  bool whole);

}  // namespace apus
