// SPDX-License-Identifier: Apache-2.0
// Groups of options that several commands share. A command's struct holds the groups it honours; the flags of
// the groups that mean nothing to it stay legal (`without_effect`), so that one script's flags serve every command. A
// flag that cannot be honoured yet has no member: it is refused with what to do instead.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "engine/answer/chat_spec.h"
#include "engine/answer/engine_spec.h"
#include "engine/answer/sampling_fields.h"
#include "media/media_options.h"

namespace apus {

// Where models and datasets that are not on this machine come from.
struct HubFlags {
  // Hub ids mean HuggingFace; else ModelScope. USE_HF=1 in the environment does the same.
  bool use_hf = false;
  std::optional<std::string> hub_token;       // else the environment's
  std::optional<std::string> model_revision;  // branch, tag or commit
  void fields(OptionTable& v);
  void resolve();                                 // reads USE_HF
  static bool is_model(const std::string& text);  // a folder here, or a hub's id
  // `model` as a folder here: a local one as it is, a hub's id ("owner/name") downloaded into that hub's cache.
  std::string fetched_model(const std::string& model, bool weights = true, const std::string& flag = "--model") const;
};

struct ModelOptions : HubFlags {
  std::string model;                       // folder of the checkpoint; a hub's id until fetch()
  std::optional<std::string> model_type;   // overrides config.json's
  std::optional<std::string> torch_dtype;  // float32 | bfloat16 | float16; absent: config.json's
  std::optional<int64_t> max_model_len;    // absent: max_position_embeddings
  std::vector<std::string> new_special_tokens;
  std::string rope_scaling;
  std::string base_folder;  // of the model, when --rope_scaling or --new_special_tokens made another of it; fetch()
  std::string device = "auto";
  std::string task_type = "causal_lm";
  void fields(OptionTable& v);
  void check() const;
  void fetch();  // brings a hub's model to this machine
};

// Over which devices a model lies. Of the commands that run one; training keeps it whole on each device.
struct PlacementOptions {
  // parallel/placement/device_map.h; empty: one device, which --device names.
  std::string device_map;
  std::string max_memory;
  void fields(OptionTable& v);
  void check(const ModelOptions& model) const;
  bool placed() const { return !device_map.empty() || !max_memory.empty(); }
};

// The folder that --adapters and --model mean: a folder of runs stands for its newest checkpoint, with a note.
std::string adapter_meant(const std::string& dir, OptionTable& v);
std::string model_meant(const std::string& model, OptionTable& v);

// May a setting of an args.json be taken here? That of another program has other names for model families and chat
// templates; and a template given here replaces both ways of naming one.
bool fits_here(const Json& args, const std::string& name, OptionTable& v);

// A LoRA adapter on the model, and what the run that made it wrote down.
struct AdapterOptions {
  std::vector<std::string> folders;  // PEFT folders: one, or none; several for a server
  bool load_args = true;             // take from its args.json what was not given here
  void fields(OptionTable& v);
  // Fills `model` and the prompt's options from args.json and adapter_config.json.
  void resolve(OptionTable& v, ModelOptions& model);
  void take_settings(OptionTable& v, ModelOptions& model);  // the same, where the folders are known to be some
  std::string first() const { return folders.empty() ? "" : folders.front(); }
};

struct RunOptions {  // what every command has
  int64_t seed = 42;
  bool ignore_args_error = false;
  bool dry_run = false;  // the command's rehearse(Rehearsal&) instead of its body
  void fields(OptionTable& v);
};

struct TemplateOptions : ChatSpec {
  std::string builtin;  // --template: the name of one of the program's own
  MediaOptions media;
  void fields(OptionTable& v);
  void resolve(OptionTable& v);  // reads the files that --system and --chat_template name
};

// For commands that give models text alone: settings of media are refused, with the reason.
void text_alone(OptionTable& v);

// What the wishes leave open, the checkpoint's generation_config.json decides, then the sampler's neutral value.
struct GenerationOptions : SamplingWishes {
  int64_t num_beams = 1;
  std::optional<bool> stream;
  std::vector<std::string> stop_words;
  bool logprobs = false;
  std::optional<int64_t> top_logprobs;
  void fields(OptionTable& v);
};

struct EngineOptions {
  EngineSpec spec;
  DraftOptions drafting;
  std::string quant_compute = "int8";  // int8, exact
  std::optional<double> kv_cache_gb;   // the cache's size in GiB; absent: from the memory, and what the context needs
  void fields(OptionTable& v);
};

// The flags of training and of loading at large that a command which trains nothing accepts or refuses.
void untrained_fields(OptionTable& v);
// How text files of rows are written.
void encoding_field(OptionTable& v, std::string& encoding);
// Flags of data preparation, for commands that read plain JSONL rows as they are.
void plain_rows_fields(OptionTable& v);

// Every flag of a group stays legal, with a note.
template <class Group>
void without_effect(OptionTable& v, const std::string& why) {
  Group group;
  const OptionTable table = OptionTable::of(group);
  for (const auto& option : table.options()) {
    option->refusal.empty() ? v.no_effect({option->name}, why) : v.refuse({option->name}, option->refusal);
  }
}

}  // namespace apus
