// SPDX-License-Identifier: Apache-2.0
// Of which tensors of a checkpoint those of a GGUF file are made, by their names and shapes.
#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "checkpoint/gguf_settings.h"
#include "gguf/model.h"
#include "models/spec/decoder_spec.h"
#include "tensor/safetensors_header.h"
#include "tensor/weight_files.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;

Shapes shapes_in(const fs::path& folder) {
  Shapes all;
  if (const auto gguf = GgufModel::in_folder(folder)) {
    for (const auto& [name, slice] : gguf->tensors()) all[name] = slice.shape;
    return all;
  }
  for (const WeightFile& file : weight_files(folder, "model")) {
    const MappedFile mapped(file.path);
    for (const auto& [name, entry] : parse_safetensors_header(mapped.data(), mapped.size(), file.path.string()).tensors)
      all[name] = entry.shape;
  }
  return all;
}

// Buffers that some tools save beside the weights.
bool is_no_weight(const std::string& name) {
  return name.ends_with(".inv_freq") || name.ends_with(".masked_bias") || name.ends_with(".attn.bias") ||
         name.ends_with(".attention.bias");
}

// Of layers that guess tokens ahead.
bool is_behind_the_last(const std::string& name, const GgufForm& form, const ModelShape& shape) {
  if (name.starts_with("mtp.")) return true;
  return name.starts_with(form.layers) && std::strtoll(name.c_str() + form.layers.size(), nullptr, 10) >= shape.layers;
}

std::vector<int64_t> shape_in_file(std::vector<int64_t> shape, const std::string& hf, const GgufTurn& turn,
                                   const GgufSizes& sizes) {
  if (const auto one = std::find(shape.begin(), shape.end(), 1); turn.drops_one && one != shape.end()) shape.erase(one);
  if (turn.turned && shape.size() > 1) std::swap(shape.at(shape.size() - 2), shape.back());
  if (turn.rows) {
    int64_t& rows = shape.size() == 1 || hf.ends_with("bias") ? shape.back() : shape.at(shape.size() - 2);
    const auto taken = turn.rows(sizes, rows);
    for (const int64_t row : taken)
      require(row >= 0 && row < rows, Fault::Model, "tensor '", hf, "' has ", rows,
              " rows, fewer than config.json means");
    rows = static_cast<int64_t>(taken.size());
  }
  if (turn.heads) {
    const int64_t heads = turn.heads(sizes);
    require(shape.size() == 2 && heads > 0 && shape[0] % heads == 0, Fault::Model, "tensor '", hf, "' has no ", heads,
            " heads");
    shape = turn.heads_turned ? std::vector<int64_t>{heads, shape[1], shape[0] / heads}
                              : std::vector<int64_t>{heads, shape[0] / heads, shape[1]};
  }
  if (turn.adds_last && !shape.empty()) shape.push_back(1);
  if (turn.rows_of_one && shape.size() == 1) shape = {turn.rows_of_one(sizes), shape[0] / turn.rows_of_one(sizes)};
  return shape;
}

}  // namespace

void add_sources(GgufSettings& settings, const DecoderSpec& spec, const fs::path& folder) {
  const GgufForm& form = settings.family->form;
  GgufSizes sizes = settings.sizes;
  sizes.config = &settings.config;
  std::map<std::string, GgufSource> found;
  std::map<std::string, std::map<int64_t, std::string>> stacks;
  std::vector<std::string> unknown;
  for (const auto& [name, shape] : shapes_in(folder)) {
    if (is_no_weight(name) || is_behind_the_last(name, form, spec.shape)) continue;
    std::vector<GgufPlace> places = places_in_file(name, form);
    if (places.empty()) places = places_in_file("model." + name, form);
    if (places.empty()) unknown.push_back(name);
    for (const GgufPlace& place : places) {
      if (spec.tied && place.name == "output.weight") continue;
      GgufSource& source = found[place.name];
      source.turn = place.turn;
      source.tensor = {place.name, GgmlType::F32, shape_in_file(shape, name, place.turn, sizes)};
      if (place.expert >= 0)
        stacks[place.name][place.expert] = name;
      else
        source.from = {name};
    }
  }
  const size_t strangers = unknown.size();
  if (strangers > 8) unknown.resize(8), unknown.push_back("...");
  require(strangers == 0, Fault::Model, strangers, " tensors have no name in a GGUF file: ", join(unknown));
  for (const auto& [name, experts] : stacks) {
    GgufSource& source = found[name];
    source.tensor.shape.insert(source.tensor.shape.begin(), std::ssize(experts));
    for (const auto& [number, from] : experts) source.from.push_back(from);
  }
  for (const auto& [name, factors] : settings.factors) found[name] = {{name, GgmlType::F32, {std::ssize(factors)}}, {}};
  for (auto& [name, source] : found) settings.sources.push_back(std::move(source));
  std::sort(settings.sources.begin(), settings.sources.end(),
            [](const GgufSource& a, const GgufSource& b) { return comes_before(a.tensor.name, b.tensor.name); });
}

}  // namespace apus
