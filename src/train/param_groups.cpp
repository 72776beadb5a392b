// SPDX-License-Identifier: Apache-2.0
#include "train/param_groups.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "base/error.h"

namespace apus {
namespace {

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

double lr_of(const NamedParam& p, const GroupRules& rules) {
  if (rules.lorap_lr_ratio > 0) {
    if (contains(p.name, "lora_embedding")) return rules.lorap_emb_lr;
    if (contains(p.name, "lora_B") || p.tensor.dim() == 1) return rules.lr * rules.lorap_lr_ratio;
  }
  for (const auto& [prefix, lr] : rules.lr_by_prefix)
    if (p.name.compare(0, prefix.size(), prefix) == 0) return lr;
  return rules.lr;
}

}  // namespace

bool decays(const std::string& parameter_name) {
  std::string name = parameter_name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (contains(name, "bias") || contains(name, "layernorm") || contains(name, "rmsnorm")) return false;
  std::istringstream parts(name);
  for (std::string part; std::getline(parts, part, '.');) {
    part.erase(part.find_last_not_of("0123456789") + 1);  // norm1
    const bool norm = part == "norm" || part.ends_with("_norm");
    if (norm || part.starts_with("ln_") || part.ends_with("_ln")) return false;
  }
  return true;
}

std::vector<ParamGroup> make_groups(const std::vector<NamedParam>& params, const GroupRules& rules) {
  std::vector<ParamGroup> groups;
  for (const NamedParam& p : params) {
    const double lr = lr_of(p, rules), decay = rules.decay_all || decays(p.name) ? rules.weight_decay : 0;
    const auto same = [&](const ParamGroup& g) { return g.lr == lr && g.weight_decay == decay; };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end())
      group = groups.insert(group,
                            {.name = str("lr ", lr, ", decay ", decay), .lr = lr, .weight_decay = decay, .params = {}});
    group->params.push_back(p);
  }
  // The group with the base rate comes first: its rate is what the log shows.
  std::stable_partition(groups.begin(), groups.end(), [&](const ParamGroup& g) { return g.lr == rules.lr; });
  return groups;
}

}  // namespace apus
