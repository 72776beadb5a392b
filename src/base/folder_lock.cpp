// SPDX-License-Identifier: Apache-2.0
#include "base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace apus {

namespace {

std::string first_line_of(int file) {
  char text[300] = {};
  const ssize_t got = ::pread(file, text, sizeof text - 1, 0);
  const std::string line(text, got > 0 ? static_cast<size_t>(got) : 0);
  return line.substr(0, line.find('\n'));
}

// A holder that ended has taken the file away: what was opened before is locked by nobody and seen by nobody.
bool is_still_there(int file, const std::filesystem::path& path) {
  struct stat opened {
  }, named{};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder) : file_(folder / kFolderLock) {
  for (;;) {
    descriptor_ = Descriptor(::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    require(descriptor_.is_open(), Fault::Io, "cannot write ", file_.string(), ": ", std::strerror(errno));
    if (::flock(descriptor_.number(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) {
        descriptor_.reset();
        return;
      }
      const std::string other = first_line_of(descriptor_.number());
      descriptor_.reset();
      fail(Fault::Usage, folder.string(), ": another run writes in this folder (",
           other.empty() ? "its process is not known" : other, "); wait for its end, or give another --output_dir");
    }
    if (is_still_there(descriptor_.number(), file_)) break;
  }
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string text = str("process ", ::getpid(), " on ", host, "\n");
  const bool told = ::ftruncate(descriptor_.number(), 0) == 0 &&
                    ::pwrite(descriptor_.number(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  require(told, Fault::Io, "cannot write ", file_.string(), ": ", std::strerror(errno));
}

FolderLock::~FolderLock() {
  if (descriptor_.is_open()) ::unlink(file_.c_str());
}

}  // namespace apus
