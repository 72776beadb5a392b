// SPDX-License-Identifier: Apache-2.0
// Groups of options of the training commands: data, tuner, optimisation, folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "checkpoint/adapter_kinds.h"
#include "cli/adapter_kind_options.h"
#include "cli/option_groups.h"
#include "train/options/optimizer_info.h"

namespace apus {

struct DataOptions {
  std::vector<std::string> dataset, val_dataset;  // paths, folders, globs, [hf::|ms::]id[:subset][#count]
  std::vector<std::string> cached_dataset, cached_val_dataset;
  double split_dataset_ratio = 0;
  int64_t data_seed = 42;
  bool dataset_shuffle = true, val_dataset_shuffle = false, train_dataloader_shuffle = true;
  bool streaming = false, strict = false, disable_auto_column_mapping = false;
  std::vector<double> interleave_prob;
  std::string stopping_strategy = "first_exhausted";
  int64_t shuffle_buffer_size = 1000;
  Json columns;
  std::string encoding;  // of text files; empty: UTF-8
  std::vector<std::string> model_name, model_author, custom_dataset_info;
  bool packing = false;
  std::optional<int64_t> packing_length;
  std::string packing_strategy = "binpack";
  std::string loss_scale = "default";
  bool add_non_thinking_prefix = true, disable_ignore_empty_think = false, group_by_length = false;
  std::optional<bool> is_binary_loss_scale, lazy_tokenize, preserve_thinking;
  int64_t dataset_num_proc = 1;
  void fields(OptionTable& v);
  void check(bool has_other_rows = false) const;
};

// TemplateOptions where rows are encoded for training.
void training_template_fields(OptionTable& v, TemplateOptions& prompt, DataOptions& data);

// --init_weights lora-ga: the rows whose gradients the first factors are made of, and how.
struct LoraGaOptions {
  int64_t batch_size = 2, iters = 2, max_length = 1024;
  GradientFactors how;
  void fields(OptionTable& v);
};

struct TunerOptions {
  std::string tuner_type = "lora";    // full, llamapro, or a kind of adapter
  std::vector<std::string> adapters;  // to train on from
  std::vector<std::string> target_modules = {"all-linear"};
  std::optional<std::string> target_regex;
  std::vector<std::string> target_parameters, modules_to_save, trainable_token_indices;
  std::string init_weights = "true";
  int64_t lora_rank = 8;
  double lora_alpha = 32, lora_dropout = 0.05;
  std::string lora_bias = "none";
  std::optional<std::string> lora_dtype;
  bool use_rslora = false, use_dora = false;
  std::optional<double> lorap_lr_ratio;
  std::vector<std::string> freeze_parameters, trainable_parameters;
  std::optional<std::string> freeze_parameters_regex, trainable_parameters_regex;
  double freeze_parameters_ratio = 0;
  bool freeze_llm = false, freeze_vit = true, freeze_aligner = true;  // of models that see
  std::optional<double> vit_lr, aligner_lr;
  LoraGaOptions lora_ga;
  int64_t llamapro_num_new_blocks = 4;
  std::optional<int64_t> llamapro_num_groups;
  AdapterKindOptions kinds;
  bool grows() const { return tuner_type == "llamapro"; }
  bool lora() const { return is_adapter_kind(tuner_type); }  // an adapter, of any kind
  void fields(OptionTable& v);
  void check() const;
};

// ms-swift's flags of GaLore, which stand for settings of galore_adamw.
struct GaloreOptions {
  bool use_galore = false, galore_with_embedding = false;
  std::vector<std::string> galore_target_modules;
  int64_t galore_rank = 128, galore_update_proj_gap = 50;
  double galore_scale = 1;
  std::string galore_proj_type = "std";
  bool galore_quantization = false;  // Q-GaLore, with what follows
  double galore_cos_threshold = 0.4;
  int64_t galore_gamma_proj = 2, galore_queue_size = 5;
  void fields(OptionTable& v);
};

// The learning rate, the optimizer, and what is computed again instead of kept.
struct OptimisationOptions {
  std::optional<double> learning_rate;
  std::string lr_scheduler_type = "cosine";
  Json lr_scheduler_kwargs;
  double warmup_ratio = 0;
  int64_t warmup_steps = 0;
  double weight_decay = 0.1, adam_beta1 = 0.9, adam_beta2 = 0.95, adam_epsilon = 1e-8;
  std::string optim = "adamw_torch";
  std::optional<std::string> optim_args, optimizer;
  std::string master_weights = "float32";  // float32, stochastic, none
  bool gradient_checkpointing = true;
  std::optional<bool> vit_gradient_checkpointing;
  Json gradient_checkpointing_kwargs;  // "layers": only the first n
  std::string recompute_granularity = "full";
  std::optional<std::string> recompute_method;
  std::optional<int64_t> recompute_num_layers;
  std::vector<std::string> recompute_modules;
  double neftune_noise_alpha = 0;
  std::vector<std::string> optim_target_modules;
  GaloreOptions galore;
  int64_t lisa_activated_layers = 0, lisa_step_interval = 20;

  // The optimizer's own name, which --optimizer or --optim chooses.
  std::string chosen_optimizer() const;
  std::string whole_matrices() const;  // the flag of one that looks at whole matrices; "": it does not
  OptimizerArguments optimizer_arguments() const;
  std::vector<std::string> optimizer_targets() const;
  // What runs again in the backward pass of a model of so many layers.
  struct Recompute {
    // The first so many: all of each; with `selective` only these parts of each.
    int64_t layers = 0;
    bool selective = false;  // norms, rotations and gates of every layer
    bool attention = false, feed_forward = false;
  };
  Recompute recompute(int64_t layers) const;
  // Of models that see: whether the layers of trained towers run again too.
  bool towers_again() const { return vit_gradient_checkpointing.value_or(gradient_checkpointing); }
  void fields(OptionTable& v);
  void check() const;
  void check_recompute() const;
  void check_optimizer(bool adapter) const;
};

// The folder that a run writes, and the checkpoint that it goes on from.
struct FolderOptions {
  std::optional<std::string> output_dir;
  bool add_version = true;
  std::vector<std::string> report_to = {"tensorboard"};
  std::optional<std::string> logging_dir;
  std::string resume_from_checkpoint;
  bool resume_only_model = false, ignore_data_skip = false;
  std::string max_shard_size = "5GB";
  int64_t max_shard_bytes = 0;  // from max_shard_size
  bool load_args = false, load_data_args = false;
  void fields(OptionTable& v);         // where it is
  void saving_fields(OptionTable& v);  // what is in it
  void resolve(OptionTable& v);
  void check() const;
};

}  // namespace apus
