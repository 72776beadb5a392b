// SPDX-License-Identifier: Apache-2.0
#include "hub/kept.h"

#include <algorithm>

namespace apus {
namespace fs = std::filesystem;

namespace {

std::vector<fs::path> folders_of(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code))
    if (it->is_directory(code) && !it->is_symlink(code)) found.push_back(it->path());
  std::sort(found.begin(), found.end());
  return found;
}

// models--owner--name
void add_huggingface(const fs::path& cache, std::vector<KeptRepo>& found) {
  for (const fs::path& folder : folders_of(cache)) {
    const std::string name = folder.filename();
    for (const auto& [prefix, kind] : {std::pair("models--", RepoKind::Model), {"datasets--", RepoKind::Dataset}}) {
      if (!name.starts_with(prefix)) continue;
      std::string id = name.substr(std::string(prefix).size());
      if (const size_t at = id.find("--"); at != std::string::npos) id.replace(at, 2, "/");
      found.push_back({id, HubKind::HuggingFace, kind, folder});
    }
  }
}

// models/owner/name, with dots written as ___
void add_modelscope(const fs::path& cache, std::vector<KeptRepo>& found) {
  for (const auto& [part, kind] : {std::pair("models", RepoKind::Model), {"datasets", RepoKind::Dataset}})
    for (const fs::path& owner : folders_of(cache / part))
      for (const fs::path& folder : folders_of(owner)) {
        std::string name = folder.filename();
        if (name.starts_with(".")) continue;
        for (size_t at; (at = name.find("___")) != std::string::npos;) name.replace(at, 3, ".");
        found.push_back({owner.filename().string() + "/" + name, HubKind::ModelScope, kind, folder});
      }
}

}  // namespace

std::vector<KeptRepo> kept_repos() {
  std::vector<KeptRepo> found;
  add_modelscope(HubOptions::from_environment(HubKind::ModelScope).cache, found);
  add_huggingface(HubOptions::from_environment(HubKind::HuggingFace).cache, found);
  return found;
}

int64_t folder_bytes(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code code;
  fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, code), end;
  for (; !code && it != end; it.increment(code)) {
    std::error_code own;
    if (!it->is_symlink(own) && it->is_regular_file(own)) bytes += static_cast<int64_t>(it->file_size(own));
  }
  return bytes;
}

}  // namespace apus
