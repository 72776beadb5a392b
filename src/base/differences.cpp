// SPDX-License-Identifier: Apache-2.0
#include "base/differences.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace apus {

std::vector<std::string> differences(const Json& there, const Json& here) {
  std::vector<std::string> found;
  const auto shown = [](const Json& object, const std::string& key) {
    return object.is_object() && object.contains(key) ? object[key].dump() : std::string("nothing");
  };
  Json keys = there.is_object() ? there : Json::object();
  if (here.is_object())
    for (const auto& [key, value] : here.items()) keys[key] = value;
  for (const auto& [key, value] : keys.items())
    if (shown(there, key) != shown(here, key))
      found.push_back(str(key, ": ", shown(there, key), " there, ", shown(here, key), " here"));
  return found;
}

}  // namespace apus
