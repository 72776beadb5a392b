// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/block_expansion.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace apus {
namespace {

constexpr const char* kCounts[] = {"num_hidden_layers", "num_layers", "n_layer", "n_layers"};

}  // namespace

BlockExpansion BlockExpansion::of(int64_t layers, int64_t new_blocks, std::optional<int64_t> groups) {
  const int64_t runs = groups.value_or(new_blocks);
  require(layers % new_blocks == 0 && layers % runs == 0, Fault::Usage,
          layers % new_blocks ? "--llamapro_num_new_blocks " : "--llamapro_num_groups ",
          layers % new_blocks ? new_blocks : runs, " does not divide the ", layers, " layers of this model");
  BlockExpansion e;
  for (int64_t i = 0; i < layers; ++i) {
    e.origin.push_back(i);
    if ((i + 1) % (layers / runs) != 0) continue;
    e.added.push_back(std::ssize(e.origin));
    e.origin.push_back(i);
  }
  return e;
}

Json BlockExpansion::config(Json smaller) const {
  const int64_t layers = std::ssize(origin) - std::ssize(added);
  bool counted = false;
  for (const char* key : kCounts)
    if (smaller.contains(key) && smaller[key] == layers) smaller[key] = std::ssize(origin), counted = true;
  require(counted, Fault::Usage, "--tuner_type llamapro is for models that read text only, whose config.json says ",
          "num_hidden_layers: use --tuner_type lora");
  for (auto& [key, value] : smaller.items()) {
    if (!value.is_array() || std::ssize(value) != layers || key == "architectures") continue;
    Json longer = Json::array();
    for (const int64_t layer : origin) longer.push_back(value[static_cast<size_t>(layer)]);
    value = std::move(longer);
  }
  // Of which layers attend in a window: those from this one on, if any.
  if (smaller.contains("max_window_layers") && smaller["max_window_layers"] == layers)
    smaller["max_window_layers"] = std::ssize(origin);
  return smaller;
}

std::vector<std::string> BlockExpansion::added_names(const std::string& layer) const {
  std::vector<std::string> all;
  for (const int64_t i : added) all.push_back(layer + std::to_string(i) + ".");
  return all;
}

bool ends_block(const std::string& module) {
  static const std::set<std::string> ends = {"o_proj", "down_proj", "c_proj",   "dense",  "dense_4h_to_h",
                                             "wo",     "w2",        "out_proj", "fc_out", "fc2"};
  return ends.count(module.substr(module.rfind('.') + 1)) > 0;
}

}  // namespace apus
