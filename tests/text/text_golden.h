// SPDX-License-Identifier: Apache-2.0
// Golden token data: what was made for this project stands in tests/data/text; the folder that APUS_GOLDEN names adds
// the real vocabularies, which are rebuilt from their merges into a temporary folder.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "tests/folder.h"
#include "tests/paths.h"
#include "text/jinja.h"
#include "text/tokenizer.h"

namespace apus::golden_text {

namespace fs = std::filesystem;

inline fs::path own() { return test::source_dir() / "tests/data/text"; }

inline std::optional<fs::path> shared() {
  const char* root = std::getenv("APUS_GOLDEN");
  if (!root || !fs::is_directory(fs::path(root) / "text")) return std::nullopt;
  return fs::path(root) / "text";
}

// A file of golden data from either place.
inline std::optional<fs::path> find(const std::string& name) {
  if (fs::exists(own() / name)) return own() / name;
  if (const auto root = shared(); root && fs::exists(*root / name)) return *root / name;
  return std::nullopt;
}

inline std::vector<Json> lines(const fs::path& path) {
  std::vector<Json> rows;
  std::istringstream in(read_file(path));
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) rows.push_back(parse_exact_json(line));
  return rows;
}

inline bool is_own(const std::string& tokenizer) {
  return fs::exists(own() / "tokenizers" / tokenizer / "tokenizer.json");
}

// A tokenizer of the golden data by name; nullptr where the real ones cannot be built here.
inline std::shared_ptr<const Tokenizer> tokenizer(const std::string& name) {
  if (is_own(name)) return Tokenizer::load(own() / "tokenizers" / name);
  const auto root = shared();
  if (!root) return nullptr;
  static const test::Folder folder;
  static const bool built = std::system(("python3 '" + (*root / "tokenizers/build_real.py").string() + "' '" +
                                         folder.path.string() + "' > /dev/null")
                                            .c_str()) == 0;
  return built ? Tokenizer::load(folder.path / name) : nullptr;
}

inline constexpr const char* kNoGolden =
    "this needs the real vocabularies: set APUS_GOLDEN to the folder with the golden data (and have python3)";

}  // namespace apus::golden_text
