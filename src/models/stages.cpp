// SPDX-License-Identifier: Apache-2.0
#include "models/stages.h"

#include <algorithm>

#include "dist/launch/stage_cut.h"

namespace apus {

namespace {

bool is_within(const std::string& name, const std::string& module) {
  return name.starts_with(module) && (name.size() == module.size() || name[module.size()] == '.');
}

// The pieces that run it, by their numbers in `layers`.
std::vector<int> pieces_of(const Model& model, const std::vector<Range>& layers, const std::string& name, bool tied) {
  const int last = static_cast<int>(layers.size()) - 1;
  for (int piece = 0; piece <= last; ++piece) {
    const Range& range = layers[static_cast<size_t>(piece)];
    for (int64_t i = range.begin; i < range.begin + range.size; ++i)
      if (is_within(name, model.layer_name(i))) return {piece};
  }
  for (const std::string& end : model.end_names())
    if (is_within(name, end)) return {last};
  // The embedding; and towers, whose features stand among its rows.
  return tied && is_within(name, model.embed_name()) ? std::vector<int>{0, last} : std::vector<int>{0};
}

bool has_tied(Model& model) {
  bool tied = false;
  model.visit([&](const std::string&, Param& p) { tied |= !p.tied.empty(); });
  return tied;
}

void add_cut(Param& p, const Cut& cut) {
  const bool has = std::any_of(p.cuts.begin(), p.cuts.end(), [](const Cut& c) { return c.axis == Axis::Pp; });
  if (has) return;
  // Behind those of matrices, in front of that of all parameters.
  const bool of_all = !p.cuts.empty() && p.cuts.back().axis == Axis::DpShard;
  p.cuts.insert(p.cuts.end() - (of_all ? 1 : 0), cut);
}

}  // namespace

void cut_into_stages(Model& model, const std::vector<Range>& layers, int stages) {
  const bool tied = has_tied(model);
  const auto cut_of = [&](const std::string& name) {
    std::vector<int> of = pieces_of(model, layers, name, tied);
    for (int& piece : of) piece %= stages;
    return stage_cut(of);
  };
  model.visit([&](const std::string& name, Param& p) { add_cut(p, cut_of(name)); });
  // Matrices of experts are views of stacked ones; adapters on them go by the cuts of the view.
  model.visit_modules([&](const std::string& name, Module& module) {
    if (auto* layer = dynamic_cast<Adaptable*>(&module)) add_cut(layer->weight(), cut_of(name));
  });
}

std::vector<bool> trains_before(Model& model, const std::vector<Range>& layers) {
  const bool tied = has_tied(model);
  std::vector<bool> out(layers.size(), false);
  model.visit([&](const std::string& name, Param& p) {
    if (!p.trainable || !p.tied.empty()) return;
    for (auto i = static_cast<size_t>(pieces_of(model, layers, name, tied)[0]) + 1; i < out.size(); ++i) out[i] = true;
  });
  return out;
}

}  // namespace apus
