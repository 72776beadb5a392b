// SPDX-License-Identifier: Apache-2.0
#include "train/trainable.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/pattern.h"
#include "nn/parts.h"

namespace apus {
namespace {

int64_t numel(const Param& p) {
  int64_t n = 1;
  for (const int64_t d : p.full) n *= d;
  return n;
}

// Sets `value` on every parameter that the rule means.
void mark(Module& model, const char* flag, const std::string& rule, bool value,
          const std::function<bool(const std::string&)>& means) {
  bool any = false;
  model.visit([&](const std::string& name, Param& p) {
    if (means(name)) any = true, p.trainable = value && !p.statistic;
  });
  require(any, Fault::Usage, flag, " ", rule,
          " means no parameter of this model; names are like model.layers.0.mlp.up_proj.weight");
}

void mark_all(Module& model, const char* flag, const std::vector<std::string>& prefixes,
              const std::optional<std::string>& regex, bool value) {
  for (const std::string& prefix : prefixes)
    mark(model, flag, prefix, value, [&](const std::string& name) { return name.rfind(prefix, 0) == 0; });
  if (!regex) return;
  const Pattern pattern(*regex, str(flag, "_regex"));
  mark(model, str(flag, "_regex").c_str(), *regex, value,
       [&](const std::string& name) { return pattern.found_in(name); });
}

}  // namespace

void choose_trainable(Module& model, const FreezeRules& rules) {
  double total = 0, sum = 0;
  model.visit([&](const std::string&, Param& p) { total += p.tied.empty() ? static_cast<double>(numel(p)) : 0; });
  model.visit([&](const std::string&, Param& p) {
    if (!p.tied.empty()) return;
    sum += static_cast<double>(numel(p));
    p.trainable = sum > total * rules.ratio && !p.statistic;
  });
  mark_all(model, "--freeze_parameters", rules.frozen, rules.frozen_regex, false);
  mark_all(model, "--trainable_parameters", rules.trained, rules.trained_regex, true);
}

std::vector<NamedParam> trainable_params(Module& model) {
  std::vector<NamedParam> params;
  bool any = false;
  model.visit([&](const std::string& name, Param& p) {
    if (!p.trainable || !p.tied.empty()) return;
    any = true;
    if (is_elsewhere(p, model.mesh())) return;  // another rank trains it
    p.data.set_requires_grad(true);
    params.push_back({name, p.data});
  });
  require(any, Fault::Usage, "nothing is left to train: every parameter is frozen");
  return params;
}

ParamCount count_params(Module& model) {
  ParamCount count;
  model.visit([&](const std::string&, Param& p) {
    if (!p.tied.empty()) return;
    count.all += numel(p);
    if (p.trainable) count.trainable += numel(p);
  });
  return count;
}

std::string param_info(const std::string& title, const ParamCount& count) {
  char text[128];
  const auto millions = [](int64_t n) { return static_cast<double>(n) / 1e6; };
  std::snprintf(text, sizeof text, "%.4fM Params (%.4fM Trainable [%.4f%%]), 0.0000M Buffers.", millions(count.all),
                millions(count.trainable),
                100.0 * static_cast<double>(count.trainable) / static_cast<double>(std::max<int64_t>(1, count.all)));
  return title + ": " + text;
}

}  // namespace apus
