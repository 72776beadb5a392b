// SPDX-License-Identifier: Apache-2.0
#include "base/assets.h"

#include "base/embedded.h"
#include "base/error.h"

namespace apus {

std::string_view asset(std::string_view name) {
  for (const auto* a = embedded_assets(); a->name; ++a)
    if (name == a->name) return {a->begin, static_cast<size_t>(a->end - a->begin)};
  fail(Fault::Bug, "the program holds no asset '", name, "'");
}

std::vector<std::string> asset_names(std::string_view prefix) {
  std::vector<std::string> names;
  for (const auto* a = embedded_assets(); a->name; ++a)
    if (std::string_view(a->name).starts_with(prefix)) names.push_back(a->name);
  return names;
}

}  // namespace apus
