// SPDX-License-Identifier: Apache-2.0
#include "models/spec/tuning_groups.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "base/nearest.h"
#include "models/spec/seeing_spec.h"

namespace apus {

namespace {
bool in_any(const std::vector<std::string>& groups, const std::string& name) {
  return std::any_of(groups.begin(), groups.end(),
                     [&](const std::string& group) { return name == group || name.starts_with(group + "."); });
}

std::string escaped(const std::string& name) {
  std::string out;
  for (const char c : name) out += c == '.' ? std::string("\\.") : std::string(1, c);
  return out;
}

// Names below one of `groups` and none of `others`, that end with one of the last parts of `modules`.
std::string expression(const std::vector<std::string>& groups, const std::vector<std::string>& others,
                       const std::vector<std::string>& modules) {
  std::set<std::string> last, heads, not_in;
  for (const std::string& module : modules)
    if (in_any(groups, module) && !in_any(others, module)) last.insert(escaped(module.substr(module.rfind('.') + 1)));
  for (const std::string& group : groups)
    if (std::any_of(modules.begin(), modules.end(), [&](const auto& m) { return m.starts_with(group + "."); }))
      heads.insert(escaped(group));
  for (const std::string& other : others) not_in.insert("(?!" + escaped(other) + "\\.)");
  if (last.empty()) return "";
  std::string out;
  for (const std::string& each : not_in) out += each;
  return out + "(" + join({heads.begin(), heads.end()}, "|") + ")\\.(.*\\.)?(" + join({last.begin(), last.end()}, "|") +
         ")";
}
}  // namespace

bool is_frozen(const SeeingSpec& spec, const FrozenGroups& frozen, const std::string& name) {
  if (in_any(spec.aligner, name)) return frozen.aligner;
  return in_any(spec.tower, name) ? frozen.vit : frozen.llm;
}

std::string all_linear_expression(const SeeingSpec& spec, const FrozenGroups& frozen,
                                  const std::vector<std::string>& linear_modules) {
  std::vector<std::string> modules = linear_modules, parts;
  std::erase_if(modules, [](const std::string& m) { return m.ends_with("lm_head") || m == "score"; });
  const auto add = [&](const std::vector<std::string>& groups, const std::vector<std::string>& others) {
    if (std::string part = expression(groups, others, modules); !part.empty()) parts.push_back(std::move(part));
  };
  std::vector<std::string> inside;  // towers whose names lie below the language's
  for (const auto* groups : {&spec.tower, &spec.aligner})
    std::copy_if(groups->begin(), groups->end(), std::back_inserter(inside),
                 [&](const std::string& group) { return in_any(spec.language, group); });
  if (!frozen.llm) add(spec.language, inside);
  if (!frozen.vit) add(spec.tower, spec.aligner);
  if (!frozen.aligner) add(spec.aligner, {});
  return parts.empty() ? "" : "^(" + join(parts, "|") + ")$";
}

std::vector<std::pair<std::string, double>> rates_of_groups(const SeeingSpec& spec, double usual,
                                                            std::optional<double> vit, std::optional<double> aligner) {
  std::vector<std::pair<std::string, double>> out;
  for (const std::string& group : spec.aligner) out.emplace_back(group + ".", aligner.value_or(usual));
  for (const std::string& group : spec.tower) out.emplace_back(group + ".", vit.value_or(usual));
  return out;
}

}  // namespace apus
