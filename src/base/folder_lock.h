// SPDX-License-Identifier: Apache-2.0
// A folder that one process at a time writes in. The lock goes with the process, however it ends.
#pragma once

#include <filesystem>

#include "base/descriptor.h"

namespace apus {

inline constexpr const char* kFolderLock = ".lock";  // the file in it that is locked

class FolderLock {
 public:
  // Fault::Usage, with the other's process and machine, where the folder is taken. Where the filesystem knows no locks,
  // none is held.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::filesystem::path file_;
  Descriptor descriptor_;
};

}  // namespace apus
