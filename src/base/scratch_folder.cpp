// SPDX-License-Identifier: Apache-2.0
#include "base/scratch_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

bool named_as_one(const std::string& name) {
  const size_t dash = name.rfind('-');
  return name.starts_with("apus-") && dash + 1 < name.size() &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dash) + 1, name.end(),
                     [](unsigned char c) { return std::isdigit(c); });
}

// Ours, with a lock that nobody holds. A folder without one is somebody else's, or is just being made.
bool left_behind(const fs::path& folder) {
  struct stat about {};
  if (::lstat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != ::geteuid()) return false;
  const Descriptor lock(::open((folder / kFolderLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  return lock.is_open() && ::flock(lock.number(), LOCK_EX | LOCK_NB) == 0;
}

void remove_left_behind(const fs::path& temporary) {
  std::error_code code;
  std::vector<fs::path> dead;
  for (const auto& entry : fs::directory_iterator(temporary, fs::directory_options::skip_permission_denied, code))
    if (named_as_one(entry.path().filename()) && left_behind(entry.path())) dead.push_back(entry.path());
  for (const fs::path& folder : dead) {
    fs::remove_all(folder, code);
    if (!code) log_info(folder.string(), ", left by a process that was killed, is removed");
  }
}

}  // namespace

ScratchFolder::ScratchFolder(const std::string& name) {
  const fs::path temporary = fs::temp_directory_path();
  remove_left_behind(temporary);
  path_ = temporary / str(name, "-", ::getpid());
  for (int n = 2; fs::exists(path_); ++n)
    path_ = temporary / str(name, "-", ::getpid(), "-", n);  // another of this process
  make_writable_dir(path_);
  fs::permissions(path_, fs::perms::owner_all);
  lock_ = std::make_unique<FolderLock>(path_);
}

ScratchFolder::~ScratchFolder() {
  lock_.reset();
  std::error_code code;
  fs::remove_all(path_, code);
}

}  // namespace apus
