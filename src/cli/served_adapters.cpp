// SPDX-License-Identifier: Apache-2.0
#include "cli/served_adapters.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

bool is_checkpoint(const std::string& name) {
  return name.starts_with("checkpoint-") || name == "best" || name == "last";
}

bool is_run(const std::string& name) {  // v0-20261122-180347
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const size_t dash = name.find('-');
  return name.size() > 2 && name[0] == 'v' && dash != std::string::npos && dash > 1 &&
         std::all_of(name.begin() + 1, name.begin() + static_cast<std::ptrdiff_t>(dash), digit) &&
         name.size() == dash + 16;
}

// The names that would suit it, best first.
std::vector<std::string> names_for(const std::string& folder) {
  fs::path at = (fs::absolute(folder) / "").lexically_normal().parent_path();
  std::vector<std::string> names;
  if (is_checkpoint(at.filename().string())) at = at.parent_path();
  if (is_run(at.filename().string())) names.push_back(at.filename().string()), at = at.parent_path();
  if (!at.filename().empty()) names.insert(names.begin(), at.filename().string());
  return names;
}

}  // namespace

std::vector<ServedAdapter> served_adapters(const std::vector<std::string>& given) {
  std::vector<ServedAdapter> all;
  for (const std::string& text : given) {
    std::error_code code;
    const size_t equals = text.find('=');
    const bool named = equals != std::string::npos && !fs::exists(text, code);
    all.push_back({named ? text.substr(0, equals) : "", named ? text.substr(equals + 1) : text, named});
  }
  return all;
}

void name_adapters(std::vector<ServedAdapter>& adapters, const std::string& model_name) {
  std::set<std::string> taken = {"", model_name};
  for (const ServedAdapter& each : adapters)
    require(!each.named || taken.insert(each.name).second, Fault::Usage, "--adapters: the name '", each.name,
            "' is taken or empty; every model needs its own");
  for (ServedAdapter& each : adapters) {
    if (each.named) continue;
    std::vector<std::string> names = names_for(each.folder);
    for (size_t i = 1; i <= adapters.size() + 1; ++i) names.push_back(i == 1 ? "lora" : str("lora-", i));
    const auto is_free = [&](const std::string& name) { return taken.count(name) == 0; };
    each.name = *std::find_if(names.begin(), names.end(), is_free);
    taken.insert(each.name);
  }
}

}  // namespace apus
