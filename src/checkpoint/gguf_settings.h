// SPDX-License-Identifier: Apache-2.0
// What a GGUF file will be, of a checkpoint folder: the model's shape, tokenizer, chat template, and of which tensors
// its tensors are made. No tensor library.
#pragma once

#include <filesystem>
#include <map>
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
};

struct GgufSettings {
  const GgufFamily* family = nullptr;
  GgufModelFacts facts;
  std::vector<std::pair<std::string, GgufValue>> all;
  std::map<std::string, std::vector<float>> factors;  // tensors of them: what periods are multiplied by
  Json config = Json::object();                       // the checkpoint's config.json
  GgufSizes sizes;                                    // without it
  std::vector<GgufSource> sources;                    // in the file's order
};

// `name` is general.name. Fault::Model for a model that such files cannot describe, or that is not written.
GgufSettings gguf_settings(const std::filesystem::path& folder, const GgufMix& mix, const std::string& name);

// tokenizer.ggml.*: `rows` tokens, of which those that the tokenizer lacks are unused.
std::vector<std::pair<std::string, GgufValue>> gguf_tokenizer(const std::filesystem::path& folder, int64_t rows);

// The parts of gguf_settings: the shape's settings; the sources; whether a reader of the file gets the same model.
void add_shape_settings(GgufSettings& settings, const DecoderSpec& spec, const std::string& where);
void add_sources(GgufSettings& settings, const DecoderSpec& spec, const std::filesystem::path& folder);
void refuse_what_is_lost(const GgufSettings& settings, const DecoderSpec& spec, const std::string& where);

}  // namespace apus
