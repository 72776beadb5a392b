// SPDX-License-Identifier: Apache-2.0
// A family of models is described once, in one file of models/families, which registers itself:
//
//   namespace {
//   DecoderSpec read(const Config& c) { ... }
//   const RegisterFamily qwen3("qwen3", {.title = "Qwen3", .architecture = "Qwen3ForCausalLM", .read = read, ...});
//   }
//
// Everything else is made from this: the modules (models/decoder), the plan (plan/model_facts), presets and tables.
#pragma once

#include <string>
#include <vector>

#include "gguf/form.h"
#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// The shape of a well-known model, which `apus init` and `apus plan` know by name.
struct Preset {
  const char* name;
  // head_dim 0: its files do not say it.
  int64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab, positions;
  double theta;
  bool tied;
  // No experts: every layer is dense.
  MixtureSpec mixture = {};
  // What its config.json says beside that of its family.
  Json says = Json::object();
};

struct Family {
  // What it is, for people.
  const char* title;
  // The name of its class in transformers, which config.json repeats.
  const char* architecture;
  DecoderSpec (*read)(const Config& config);
  // What it reads is an encoder (DecoderSpec::encoder).
  bool encoder = false;
  // What config.json of every preset says.
  Json says = Json::object();
  std::vector<Preset> presets = {};
  // How it stands in GGUF files; and, of one that sees, its tower.
  GgufForm gguf = {};
  GgufTower gguf_tower = {};
};

struct RegisterFamily {
  RegisterFamily(const char* model_type, Family family);
};

// By model_type, as config.json has it.
std::vector<std::string> known_models();

// From a checkpoint's config.json: any of the spellings that transformers has used over the years. Fault::Model for
// what is not known, naming the known and the nearest, and for what would be another model. A scalar head has as many
// outputs as the file names labels (num_labels, id2label), otherwise one.
DecoderSpec describe_model(const Json& config, Head head = Head::Vocab);

// Fault::Model where a width is 0.
void check_widths(const DecoderSpec& spec);

bool is_known_model(const std::string& model_type);
// Whether the family reads texts as a whole and gives no words; false where it is not known.
bool is_encoder(const Json& config);
// The module of a head of numbers: score, or an encoder's own.
std::string score_head_name(const Json& config);
// What a checkpoint gives by itself: numbers of a classifier, an encoder's states, words.
Head natural_head(const Json& config);

// The forms that files of this model may have; empty: names are the model's own, or the model is not known.
std::vector<DiskForm> disk_forms_of(const Json& config);

// One row a family, for people: what it is and what can be done with it.
std::string family_table();

}  // namespace apus
