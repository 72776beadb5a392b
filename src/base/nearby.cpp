// SPDX-License-Identifier: Apache-2.0
#include "base/nearby.h"

#include <vector>

#include "base/nearest.h"

namespace apus {
namespace fs = std::filesystem;

std::string nearby(const fs::path& missing) {
  fs::path wanted = missing.lexically_normal();
  if (wanted.filename().empty()) wanted = wanted.parent_path();
  std::error_code code;
  std::vector<std::string> there;
  for (fs::directory_iterator it(wanted.has_parent_path() ? wanted.parent_path() : fs::path("."), code), end;
       it != end && there.size() < 4096; it.increment(code))
    there.push_back(it->path().filename().string());
  std::vector<std::string> near = nearest(wanted.filename().string(), there);
  for (std::string& name : near) name = (wanted.parent_path() / name).string();
  return near.empty() ? "" : "; did you mean " + join(near, " or ") + "?";
}

}  // namespace apus
