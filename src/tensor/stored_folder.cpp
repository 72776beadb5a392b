// SPDX-License-Identifier: Apache-2.0
#include "tensor/stored_folder.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "tensor/safetensors_header.h"
#include "tensor/weight_files.h"

namespace apus {

StoredFolder::StoredFolder(const std::filesystem::path& dir, const std::string& stem) {
  for (const auto& [path, promised] : weight_files(dir, stem)) {
    const auto file = std::make_shared<const MappedFile>(path);
    const auto header = parse_weights_header(file->data(), file->size(), path.string());
    for (const auto& name : promised)
      require(header.tensors.count(name) > 0, Fault::Model, path.string(), ": the index promises tensor '", name,
              "' here, but it is not in the file");
    for (const auto& [name, entry] : header.tensors)
      if (promised.empty() || std::find(promised.begin(), promised.end(), name) != promised.end())
        tensors_[name] = {entry.type, entry.shape, file->data() + entry.begin, entry.end - entry.begin, file};
  }
}

const StoredTensor* StoredFolder::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

std::vector<std::string> StoredFolder::names_below(const std::string& prefix) const {
  std::vector<std::string> names;
  for (auto it = tensors_.lower_bound(prefix); it != tensors_.end() && it->first.starts_with(prefix); ++it)
    names.push_back(it->first);
  return names;
}

}  // namespace apus
