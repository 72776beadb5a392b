// SPDX-License-Identifier: Apache-2.0
// A folder of this process among the temporary files, which goes with it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/folder_lock.h"

namespace apus {

class ScratchFolder {
 public:
  // <temporary files>/<name>-<process>; `name` begins with "apus-". What killed processes have left of such folders, by
  // any name, is removed first: their locks went with them.
  explicit ScratchFolder(const std::string& name);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace apus
