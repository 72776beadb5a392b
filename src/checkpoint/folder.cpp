// SPDX-License-Identifier: Apache-2.0
// Folders that are complete or absent.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/files.h"
#include "checkpoint/file_names.h"
#include "checkpoint/state.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr const char* kDoomed = ".removed-";

void sync_path(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  require(file.is_open(), Fault::Io, "cannot open ", path.string(), ": ", std::strerror(errno));
  const bool synced =
      ::fsync(file.number()) == 0 || errno == EINVAL || errno == EROFS;  // some filesystems cannot sync folders
  require(synced, Fault::Io, "cannot sync ", path.string(), ": ", std::strerror(errno));
}

fs::path hidden(const fs::path& target, const char* mark) {
  return target.parent_path() / str(".", target.filename().string(), mark, ::getpid());
}

// Out of sight first: a removal that is cut short must not leave half a checkpoint under its name.
void remove_folder(const fs::path& dir) {
  const fs::path doomed = hidden(dir, kDoomed);
  std::error_code code;
  fs::rename(dir, doomed, code);
  fs::remove_all(code ? dir : doomed, code);
}

}  // namespace

FolderWriter::FolderWriter(const fs::path& target)
    : target_(fs::absolute(target)), partial_(hidden(target_, kPartialMark)) {
  std::error_code code;
  fs::remove_all(partial_, code);
  fs::create_directories(partial_, code);
  require(!code, Fault::Io, "cannot create ", partial_.string(), ": ", code.message());
}

FolderWriter::~FolderWriter() {
  std::error_code code;
  if (!done_) fs::remove_all(partial_, code);
}

void FolderWriter::commit() {
  for (const auto& entry : fs::recursive_directory_iterator(partial_)) sync_path(entry.path());
  sync_path(partial_);
  const bool replaces = fs::exists(target_);
  const fs::path old = hidden(target_, kDoomed);
  std::error_code code;
  if (replaces) fs::rename(target_, old, code);
  if (!code) fs::rename(partial_, target_, code);
  require(!code, Fault::Io, "cannot move ", partial_.string(), " to ", target_.string(), ": ", code.message());
  done_ = true;
  sync_path(target_.parent_path());
  if (replaces) fs::remove_all(old, code);
}

void remove_leftovers(const fs::path& run_dir) {
  std::error_code code;
  std::vector<fs::path> dead;
  for (const auto& entry : fs::directory_iterator(run_dir, code)) {
    const std::string name = entry.path().filename();
    for (const char* mark : {kPartialMark, kDoomed}) {
      const size_t at = name.rfind(mark);
      if (name[0] != '.' || at == std::string::npos) continue;
      const auto process = static_cast<pid_t>(std::strtol(name.c_str() + at + std::strlen(mark), nullptr, 10));
      if (process != ::getpid() && ::kill(process, 0) != 0 && errno == ESRCH) dead.push_back(entry.path());
    }
  }
  for (const fs::path& dir : dead) fs::remove_all(dir, code);
}

void rotate_checkpoints(const fs::path& run_dir, int64_t limit, const std::vector<fs::path>& keep) {
  if (limit <= 0) return;
  auto all = list_checkpoints(run_dir);
  auto left = static_cast<int64_t>(all.size());
  for (const auto& [step, dir] : all) {
    if (left <= limit) return;
    const bool kept = std::any_of(keep.begin(), keep.end(),
                                  [&, path = dir](const fs::path& k) { return k.filename() == path.filename(); });
    if (kept) continue;
    remove_folder(dir);
    --left;
  }
}

void point_link(const fs::path& run_dir, const std::string& name, const fs::path& target) {
  const fs::path made = run_dir / str(".", name, kPartialMark, ::getpid());
  std::error_code code;
  fs::remove(made, code);
  fs::create_directory_symlink(target.filename(), made, code);
  if (!code) fs::rename(made, run_dir / name, code);
  require(!code, Fault::Io, "cannot link ", (run_dir / name).string(), " to ", target.string(), ": ", code.message());
}

}  // namespace apus
