// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/held_files.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

int64_t size_of(int descriptor, const fs::path& path) {
  struct stat info {};
  const bool known = ::fstat(descriptor, &info) == 0;  // before the arguments of require(), which read errno
  require(known, Fault::Io, path.string(), ": ", std::strerror(errno));
  require(!S_ISDIR(info.st_mode), Fault::Io, path.string(), " is a folder, a file is needed");
  return info.st_size;
}

void write_all(int descriptor, const void* bytes, int64_t count, int64_t offset, const fs::path& path) {
  const char* p = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = ::pwrite(descriptor, p, static_cast<size_t>(count), offset);
    if (done < 0 && errno == EINTR) continue;
    require(done > 0, Fault::Io, "cannot write ", path.string(), ": ", std::strerror(errno));
    p += done, count -= done, offset += done;
  }
}

void sync_folder(const fs::path& file) {
  const fs::path parent = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const Descriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.is_open()) ::fsync(folder.number());  // some filesystems refuse; the rename stands all the same
}

}  // namespace

std::string read_file(const fs::path& path, int64_t limit) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  require(file.is_open(), Fault::Io, "cannot open ", path.string(), ": ", std::strerror(errno));
  const int64_t size = size_of(file.number(), path);
  require(size <= limit, Fault::Io, path.string(), " has ", size, " bytes, more than the ", limit, " allowed here");
  std::string text;
  text.reserve(static_cast<size_t>(size) + 1);
  char block[1 << 16];
  for (;;) {  // pipes and /proc files report size 0, so read to the end
    const ssize_t got = ::read(file.number(), block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, Fault::Io, "cannot read ", path.string(), ": ", std::strerror(errno));
    if (got == 0) return text;
    text.append(block, static_cast<size_t>(got));
    require(static_cast<int64_t>(text.size()) <= limit, Fault::Io, path.string(), " is longer than the ", limit,
            " bytes allowed here");
  }
}

void write_file_atomic(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void make_writable_dir(const fs::path& dir) {
  std::error_code code;
  fs::create_directories(dir, code);
  require(!code, Fault::Io, "cannot create the folder ", dir.string(), ": ", code.message());
  const fs::path probe = dir / str(".apus-probe-", ::getpid());
  const Descriptor file(::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  require(file.is_open(), Fault::Io, "cannot write into the folder ", dir.string(), ": ", std::strerror(errno));
  ::unlink(probe.c_str());
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  require(file.is_open(), Fault::Io, "cannot open ", path.string(), ": ", std::strerror(errno));
  size_ = size_of(file.number(), path);
  if (size_ == 0) return;
  void* p = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, file.number(), 0);
  require(p != MAP_FAILED, Fault::Io, "cannot map ", path.string(), ": ", std::strerror(errno));
  data_ = static_cast<const std::byte*>(p);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

namespace {
// madvise wants whole pages: `inner` shrinks to pages wholly inside, else grows to cover.
void advise(const std::byte* base, int64_t offset, int64_t bytes, int advice, bool inner) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto first = reinterpret_cast<uintptr_t>(base + offset), last = first + static_cast<uintptr_t>(bytes);
  first = inner ? (first + page - 1) / page * page : first / page * page;
  last = inner ? last / page * page : last;
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, advice);
}
}  // namespace

void MappedFile::will_need(int64_t offset, int64_t bytes) const { advise(data_, offset, bytes, MADV_WILLNEED, false); }
void MappedFile::forget(int64_t offset, int64_t bytes) const { advise(data_, offset, bytes, MADV_DONTNEED, true); }

void populate_mapped(const void* data, int64_t bytes) {
  // MADV_POPULATE_READ, Linux 5.14; older headers lack its name, older kernels refuse it.
  constexpr int kPopulateRead = 22;
  advise(static_cast<const std::byte*>(data), 0, bytes, kPopulateRead, false);
}
void forget_mapped(const void* data, int64_t bytes) {
  advise(static_cast<const std::byte*>(data), 0, bytes, MADV_DONTNEED, true);
}

AtomicFile::AtomicFile(const fs::path& path) : path_(path), partial_(path.string() + str(".partial-", ::getpid())) {
  HeldFiles* const held = HeldFiles::here();
  descriptor_ = held ? held->open(partial_) : ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  require(descriptor_ >= 0, Fault::Io, "cannot create ", partial_.string(), ": ", std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_.c_str());
}

void AtomicFile::write(const void* bytes, int64_t count) {
  write_at(offset_, bytes, count);
  offset_ += count;
}

void AtomicFile::write_at(int64_t offset, const void* bytes, int64_t count) {
  if (HeldFiles* const held = HeldFiles::here()) held->about_to_write(descriptor_, count, partial_);
  write_all(descriptor_, bytes, count, offset, partial_);
}

void AtomicFile::commit() {
  if (HeldFiles* const held = HeldFiles::here(); held && held->keep(path_, descriptor_)) {
    descriptor_ = -1;
    return;
  }
  const bool synced = ::fsync(descriptor_) == 0;
  require(synced, Fault::Io, "cannot sync ", partial_.string(), ": ", std::strerror(errno));
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0 || ::rename(partial_.c_str(), path_.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    ::unlink(partial_.c_str());
    fail(Fault::Io, "cannot write ", path_.string(), ": ", why);
  }
  sync_folder(path_);
}

}  // namespace apus
