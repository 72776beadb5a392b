// SPDX-License-Identifier: Apache-2.0
#include "train/chosen_layers.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"

namespace apus {
namespace {

struct NumberedLayer {
  std::string list;  // "model.layers"
  int64_t layer = -1;
};

// Where the first number stands in a parameter's name.
NumberedLayer numbered_layer(const std::string& name) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    const size_t end = name.find_first_not_of("0123456789", dot + 1);
    if (end != std::string::npos && end > dot + 1 && end < dot + 8 && name[end] == '.')
      return {name.substr(0, dot), std::stoll(name.substr(dot + 1, end - dot - 1))};
  }
  return {};
}

}  // namespace

std::set<int64_t> drawn_layers(int64_t layers, int64_t count, uint64_t seed, int64_t draw) {
  std::vector<int64_t> all(static_cast<size_t>(layers));
  std::iota(all.begin(), all.end(), 0);
  const auto rank = [&](int64_t layer) { return mix(seed, static_cast<uint64_t>(draw), static_cast<uint64_t>(layer)); };
  std::sort(all.begin(), all.end(), [&](int64_t a, int64_t b) { return rank(a) < rank(b); });
  return {all.begin(), all.begin() + std::min(count, layers)};
}

// A model that sees has further lists, of its towers' layers: the language model's is as long as is known.
ChosenLayers::ChosenLayers(Module& model, Optimizer& optimizer, Spec spec) : optimizer_(optimizer), spec_(spec) {
  std::map<std::string, std::set<int64_t>> lists;
  std::string list;
  model.visit([&](const std::string& name, Param&) {
    const NumberedLayer place = numbered_layer(name);
    if (place.layer < 0) return;
    lists[place.list].insert(place.layer);
    if (std::ssize(lists[place.list]) == spec.layers) list = place.list;
  });
  require(!list.empty(), Fault::Usage,
          "--lisa_activated_layers: the layers of this model are not numbered: leave it out");
  require(spec.count <= spec.layers, Fault::Usage, "--lisa_activated_layers ", spec.count, ": this model has ",
          spec.layers, " layers");
  for (size_t i = 0; i < optimizer.size(); ++i) {
    const NumberedLayer place = numbered_layer(optimizer.param(i).name);
    layer_of_.push_back(place.list == list ? place.layer : -1);
  }
}

void ChosenLayers::before_step(int64_t steps) {
  const int64_t draw = steps / spec_.interval;
  if (draw == draw_) return;
  draw_ = draw;
  const std::set<int64_t> trained = drawn_layers(spec_.layers, spec_.count, spec_.seed, draw);
  for (size_t i = 0; i < layer_of_.size(); ++i) {
    const bool rests = layer_of_[i] >= 0 && !trained.count(layer_of_[i]);
    at::Tensor(optimizer_.param(i).tensor).set_requires_grad(!rests);
    optimizer_.rest(i, rests);
  }
  std::string names;
  for (const int64_t layer : trained) names += str(names.empty() ? "" : ", ", layer);
  log_info("from step ", steps + 1, " the layers ", names, " are trained");
}

}  // namespace apus
