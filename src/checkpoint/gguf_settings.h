// SPDX-License-Identifier: Apache-2.0
// What a GGUF file will be, of a checkpoint folder: the model's shape, tokenizer, chat template, and of which tensors
// its tensors are made. No tensor library.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gguf/mix.h"
#include "gguf/names.h"

namespace apus {

struct DecoderSpec;  // models/spec/decoder_spec.h

// A tensor of the file, and the checkpoint's that it is made of: several where experts are stacked; none where its
// numbers are in `factors`.
struct GgufSource {
  GgufPlan::Tensor tensor;
  std::vector<std::string> from;
  GgufTurn turn = {};
  int64_t row = -1;  // this one of it alone; -1: all
};

// Of a tower, by the model's own names: the checkpoint's name and the shape.
using TensorsOfTower = std::map<std::string, std::pair<std::string, std::vector<int64_t>>>;

struct GgufSettings {
  GgufFamily family;
  std::optional<GgufTowerFamily> seeing;  // of a model that sees; the family is the text's then
  GgufModelFacts facts;
  std::vector<std::pair<std::string, GgufValue>> all;
  std::map<std::string, std::vector<float>> factors;  // tensors of them: what periods are multiplied by
  Json whole = Json::object(), config = whole;        // the checkpoint's config.json, and the text's part of it
  GgufSizes sizes;                                    // without it
  std::vector<GgufSource> sources;                    // in the file's order
  TensorsOfTower of_tower;
};

// The file of the tower.
struct GgufTowerSettings {
  std::vector<std::pair<std::string, GgufValue>> all;
  Json vision = Json::object();  // vision_config
  GgufSizes sizes;               // without it
  std::vector<GgufSource> sources;
};

// `name` is general.name. Fault::Model for a model that such files cannot describe, or that is not written.
GgufSettings gguf_settings(const std::filesystem::path& folder, const GgufMix& mix, const std::string& name);

// Of settings of a model that sees. Matrices are of `type`.
GgufTowerSettings gguf_tower_settings(const GgufSettings& settings, const std::filesystem::path& folder, GgmlType type,
                                      const std::string& name);

// tokenizer.ggml.*: `rows` tokens, of which those that the tokenizer lacks are unused.
std::vector<std::pair<std::string, GgufValue>> gguf_tokenizer(const std::filesystem::path& folder, int64_t rows);

// The parts of gguf_settings: the shape's settings; the sources; whether a reader of the file gets the same model.
void add_shape_settings(GgufSettings& settings, const DecoderSpec& spec, const std::string& where);
void add_sources(GgufSettings& settings, const DecoderSpec& spec, const std::filesystem::path& folder);
std::vector<GgufSource> sources_of_tower(const TensorsOfTower& tensors, const GgufForm& form, const GgufSizes& sizes);
// A setting of config.json under the file's name.
void write_key(const Json& config, const GgufKey& key, GgufSettingsWriter& out);
// `seen`: what a reader of the file gets.
void refuse_what_is_lost(const GgufSettings& settings, const DecoderSpec& spec, const DecoderSpec& seen,
                         const std::string& where);
// What a reader finds, before it is written.
GgufHeader planned_header(const std::vector<std::pair<std::string, GgufValue>>& settings,
                          const std::vector<GgufSource>& sources, const std::string& where);

}  // namespace apus
