// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint folder that are not weights: tokenizer, processor, generation settings.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace apus {

// All but config.json, weights, their indices, and what a training run leaves beside (adapters, states). Held in memory
// for who writes them later: the folder may be gone by then, as a checkpoint that a run goes on from is.
class SideFiles {
 public:
  SideFiles() = default;
  explicit SideFiles(const std::filesystem::path& from);
  void write(const std::filesystem::path& to) const;

 private:
  std::map<std::string, std::string> files_;  // name, content
};

void copy_side_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace apus
