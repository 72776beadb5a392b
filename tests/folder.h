// SPDX-License-Identifier: Apache-2.0
// A new folder that is removed, with all in it, at the end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>

namespace apus::test {

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "apus-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("cannot make a folder like " + name);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::filesystem::path path;
};

}  // namespace apus::test
