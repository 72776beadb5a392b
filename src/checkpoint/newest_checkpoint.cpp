// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/newest_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

namespace apus {
namespace fs = std::filesystem;

namespace {

// The folders that are called `prefix` and a number, the largest first; what follows the number is a dash, or nothing.
std::vector<fs::path> numbered(const fs::path& folder, const std::string& prefix) {
  std::vector<std::pair<long, fs::path>> found;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename();
    if (!name.starts_with(prefix) || !it->is_directory(code)) continue;
    long number = 0;
    const char* const last = name.data() + name.size();
    const auto [rest, wrong] = std::from_chars(name.data() + prefix.size(), last, number);
    if (wrong == std::errc() && (rest == last || *rest == '-')) found.emplace_back(number, it->path());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> paths;
  for (auto& [number, path] : found) paths.push_back(std::move(path));
  return paths;
}

fs::path last_of_run(const fs::path& run) {
  for (const fs::path& checkpoint : numbered(run, "checkpoint-")) {
    std::error_code code;
    for (const char* file : {"adapter_config.json", "default/adapter_config.json", "config.json"})
      if (fs::exists(checkpoint / file, code)) return checkpoint;
  }
  return {};
}

}  // namespace

fs::path newest_checkpoint(const fs::path& folder) {
  if (fs::path own = last_of_run(folder); !own.empty()) return own;
  for (const fs::path& run : numbered(folder, "v"))
    if (fs::path last = last_of_run(run); !last.empty()) return last;
  return {};
}

}  // namespace apus
