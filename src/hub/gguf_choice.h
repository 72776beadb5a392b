// SPDX-License-Identifier: Apache-2.0
// Which files of a repository of GGUF files are one model, as people name it: owner/name:Q4_K_M. Pure.
#pragma once

#include <string>
#include <vector>

namespace apus {

struct GgufWish {
  std::string repo, type;  // type empty: not said
};
GgufWish gguf_wish(const std::string& model);

bool is_gguf_path(const std::string& path);   // ends in .gguf, in letters of either size
bool is_tower_path(const std::string& path);  // as llama.cpp's tools call the file of a tower: mmproj-F16.gguf

// The model's file, or all of its parts in order, and behind them the tower's. Where no type is said, Q4_K_M, or else
// what comes first by name. Fault::Usage where nothing is of this type; `repo` is named there.
struct GgufFiles {
  std::vector<std::string> model, tower;
  std::vector<std::string> all() const;
};
GgufFiles gguf_choice(std::vector<std::string> paths, const std::string& type, const std::string& repo);

}  // namespace apus
