// SPDX-License-Identifier: Apache-2.0
// Of which tensors of a checkpoint those of a GGUF file are made, by their names and shapes.
#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "checkpoint/gguf_settings.h"
#include "gguf/model.h"
#include "models/spec/family.h"
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
    for (const auto& [name, entry] : parse_weights_header(mapped.data(), mapped.size(), file.path.string()).tensors)
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
  if (turn.groups > 0 && shape.size() > 2) {
    shape.at(shape.size() - 2) *= shape.at(shape.size() - 3);
    shape.erase(shape.end() - 3);
  }
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
  while (std::ssize(shape) < turn.ones_first.file) shape.insert(shape.begin(), 1);
  if (turn.row_shape) {
    const std::vector<int64_t> row = turn.row_shape(sizes);
    int64_t width = 1;
    for (const int64_t d : row) width *= d;
    require(shape.size() == 2 && shape[1] == width, Fault::Model, "tensor '", hf, "' has no rows of ", width,
            " numbers");
    shape.pop_back();
    shape.insert(shape.end(), row.begin(), row.end());
  }
  if (turn.adds_last && !shape.empty()) shape.push_back(1);
  if (turn.rows_of_one && shape.size() == 1) shape = {turn.rows_of_one(sizes), shape[0] / turn.rows_of_one(sizes)};
  return shape;
}

// What the checkpoint has under a name of the form's.
struct Held {
  std::string name;
  std::vector<int64_t> shape;
};

// Of all tensors those that the form knows; the names of the others.
class Sources {
 public:
  Sources(const GgufForm& form, const GgufSizes& sizes) : form_(form), sizes_(sizes) {}

  void add(const std::string& name, const Held& held) {
    std::vector<GgufPlace> places = places_in_file(name, form_);
    if (places.empty() && form_.language) places = places_in_file("model." + name, form_);
    if (places.empty() && !is_number_of_layer(name)) unknown.push_back(held.name);
    for (const GgufPlace& place : places) {
      GgufSource& source = found_[place.name];
      source.turn = place.turn;
      source.tensor = {place.name, GgmlType::F32, shape_in_file(held.shape, name, place.turn, sizes_)};
      if (place.expert >= 0)
        stacks_[place.name][place.expert] = held.name;
      else
        source.from = {held.name};
    }
  }
  void add_factors(const std::string& name, int64_t count) { found_[name] = {{name, GgmlType::F32, {count}}, {}}; }
  void drop(const std::string& name) { found_.erase(name); }

  std::vector<GgufSource> in_order() {
    for (const auto& [name, experts] : stacks_) {
      GgufSource& source = found_[name];
      source.tensor.shape.insert(source.tensor.shape.begin(), std::ssize(experts));
      for (const auto& [number, from] : experts) source.from.push_back(from);
    }
    std::vector<GgufSource> all;
    for (auto& [name, source] : found_) all.push_back(std::move(source));
    std::sort(all.begin(), all.end(),
              [](const GgufSource& a, const GgufSource& b) { return comes_before(a.tensor.name, b.tensor.name); });
    return all;
  }

  std::vector<std::string> unknown;

 private:
  bool is_number_of_layer(const std::string& name) const {
    return std::any_of(form_.numbers.begin(), form_.numbers.end(), [&](const GgufNumber& number) {
      return name.starts_with(form_.layers) && name.ends_with("." + number.hf);
    });
  }
  const GgufForm& form_;
  const GgufSizes& sizes_;
  std::map<std::string, GgufSource> found_;
  std::map<std::string, std::map<int64_t, std::string>> stacks_;
};

void refuse(std::vector<std::string> unknown) {
  const size_t strangers = unknown.size();
  if (strangers > 8) unknown.resize(8), unknown.push_back("...");
  require(strangers == 0, Fault::Model, strangers, " tensors have no name in a GGUF file: ", join(unknown));
}

// The tensors under the model's own names, of which the folder's form has as many as any.
std::map<std::string, Held> by_own_names(const fs::path& folder, std::vector<DiskForm> forms,
                                         const std::function<bool(const std::string&)>& known) {
  const Shapes shapes = shapes_in(folder);
  if (forms.empty()) forms.emplace_back();  // names are the model's own
  std::map<std::string, Held> best;
  int64_t most = -1;
  for (const DiskForm& form : forms) {
    std::map<std::string, Held> named;
    int64_t count = 0;
    for (const auto& [disk, shape] : shapes) {
      const std::string own = form.own_name(disk);
      named[own] = {disk, shape};
      count += known(own);
    }
    if (count > most) most = count, best = std::move(named);
  }
  return best;
}

// The text's name of the other family's; empty: it is none of the text's.
std::string text_name(const std::string& own, const GgufTower& tower) {
  for (const auto& [from, to] : tower.begins)
    if (own.starts_with(to)) return from + own.substr(to.size());
  return own.starts_with("lm_head.") ? own : "";
}

}  // namespace

void add_sources(GgufSettings& settings, const DecoderSpec& spec, const fs::path& folder) {
  const GgufForm& form = settings.family.form;
  GgufSizes sizes = settings.sizes;
  sizes.config = &settings.config;
  Sources sources(form, sizes);
  std::map<std::string, Held> all;
  if (const auto& seeing = settings.seeing) {
    const auto named = by_own_names(folder, disk_forms_of(settings.whole), [&](const std::string& own) {
      const std::string name = text_name(own, seeing->tower);
      return !places_in_file(name.empty() ? own : name, name.empty() ? seeing->tower.form : form).empty();
    });
    for (const auto& [own, held] : named)
      if (const std::string name = text_name(own, seeing->tower); !name.empty())
        all[name] = held;
      else
        settings.of_tower[own] = {held.name, held.shape};
  } else {
    for (const auto& [name, shape] : shapes_in(folder)) all[name] = {name, shape};
  }
  for (const auto& [name, held] : all)
    if (!is_no_weight(name) && !is_behind_the_last(name, form, spec.shape)) sources.add(name, held);
  refuse(std::move(sources.unknown));
  if (spec.tied) sources.drop("output.weight");
  for (const auto& [name, factors] : settings.factors) sources.add_factors(name, std::ssize(factors));
  settings.sources = sources.in_order();
}

std::vector<GgufSource> sources_of_tower(const TensorsOfTower& tensors, const GgufForm& form, const GgufSizes& sizes) {
  Sources sources(form, sizes);
  for (const auto& [own, held] : tensors)
    if (!is_no_weight(own)) sources.add(own, {held.first, held.second});
  refuse(std::move(sources.unknown));
  return sources.in_order();
}

}  // namespace apus
