// SPDX-License-Identifier: Apache-2.0
// Where folders are kept that stand for another checkpoint. No tensor library.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace apus {

// $XDG_CACHE_HOME/apus/<name>, or below the home folder's .cache.
inline std::filesystem::path user_cache(const std::string& name) {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  const std::filesystem::path root = cache && *cache ? std::filesystem::path(cache)
                                     : home && *home ? std::filesystem::path(home) / ".cache"
                                                     : std::filesystem::temp_directory_path();
  return root / "apus" / name;
}

}  // namespace apus
