// SPDX-License-Identifier: Apache-2.0
// The options of `apus export` and `apus merge-lora`; their body is run/export.cpp.
#pragma once

#include "cli/option_groups.h"
#include "cli/push_options.h"
#include "cli/train_options.h"
#include "quant/wish.h"
#include "train/options/algorithm_options.h"

namespace apus {

class Rehearsal;  // cli/rehearsal.h

struct ExportOptions {
  HubFlags hub;
  TemplateOptions prompt;
  DataOptions data;
  RunOptions common;
  // Empty: the adapter's base_model_name_or_path; a hub's id until fetch().
  std::string model;
  std::string named;  // the model as it was given, before fetch()
  std::vector<std::string> adapters;
  std::vector<double> adapter_weights;  // empty: 1 each
  // Empty: <adapter>-merged, <model>-cached_dataset, -gguf, -ollama, -bnb-int4.
  std::string output_dir;
  std::optional<std::string> torch_dtype;
  std::vector<std::string> new_special_tokens;  // with which, and how stretched, the adapter was trained
  std::string rope_scaling;
  std::optional<int64_t> max_model_len;
  std::string max_shard_size = "5GB";
  int64_t max_shard_bytes = 0;
  quant::Wish quantise;
  int64_t quant_n_samples = 256, quant_batch_size = 1, group_size = 128;
  bool desc_act = false;
  // Whether its weights are quantised with the help of rows.
  bool calibrates() const;
  bool to_hf = false;  // the model, or an adapter that is not merged, written anew
  bool merge_lora = false, to_cached_dataset = false, to_ollama = false, exist_ok = false;
  std::string task_type = "causal_lm", template_mode = "train";  // what --to_cached_dataset encodes rows for
  std::optional<int64_t> num_labels;
  std::optional<std::string> problem_type;
  CachedRows cached_rows() const;  // after fetch()
  std::string to_gguf;             // a mix of gguf/mix.h; empty: no GGUF file
  std::string imatrix;             // an importance matrix for it; empty: none
  PushOptions push;
  bool only_pushes() const;              // a folder that is there, written by nobody here
  std::filesystem::path pushed() const;  // what is uploaded: a folder, or a file
  void fields(OptionTable& v);
  void resolve(OptionTable& v);
  void check() const;
  void rehearse(Rehearsal& r) const;
  void fetch();
  bool converts() const { return to_ollama || !to_gguf.empty(); }
  std::string model_name() const;           // of the base or the adapter's folder, for general.name and file names
  std::filesystem::path gguf_path() const;  // --output_dir itself where it is a .gguf

 private:
  void take_settings_of(const std::filesystem::path& adapter, OptionTable& v);
  void check_merge() const;
  void check_output() const;
  std::string rows_for() const;  // the algorithm of --task_type and --template_mode
  void check_cached() const;
  void check_anew() const;
  void check_quantise() const;
  void check_calibration() const;
};

}  // namespace apus
