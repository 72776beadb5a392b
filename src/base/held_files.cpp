// SPDX-License-Identifier: Apache-2.0
#include "base/held_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kWindow = int64_t{64} << 20;  // of copies, and between two looks at what memory is left

thread_local HeldFiles* held_here = nullptr;

int64_t size_of(int descriptor) {
  struct stat info {};
  return ::fstat(descriptor, &info) == 0 ? info.st_size : 0;
}

// Window by window; memory that has been written is given back at once.
void move_bytes(int from, const std::function<void(const void*, int64_t)>& write) {
  const int64_t size = size_of(from);
  for (int64_t at = 0; at < size; at += kWindow) {
    const int64_t count = std::min(kWindow, size - at);
    void* const mapped = ::mmap(nullptr, static_cast<size_t>(count), PROT_READ, MAP_SHARED, from, at);
    require(mapped != MAP_FAILED, Fault::Io, "cannot read what is held in memory: ", std::strerror(errno));
    {
      const std::unique_ptr<void, std::function<void(void*)>> unmapped(
          mapped, [&](void* p) { ::munmap(p, static_cast<size_t>(count)); });
      write(mapped, count);
    }
    ::fallocate(from, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, count);
  }
}

}  // namespace

HeldFiles* HeldFiles::here() { return held_here; }

void HeldFiles::hold(const std::function<void()>& work) {
  HeldFiles* const before = std::exchange(held_here, this);
  const std::unique_ptr<void, std::function<void(void*)>> restored(this, [&](void*) { held_here = before; });
  work();
}

bool HeldFiles::has_room_for(int64_t count) {
  if (count > left_) left_ = std::min(room_(), kWindow + count);
  if (count > left_) return false;
  left_ -= count;
  return true;
}

int HeldFiles::open(const fs::path& partial) {
  const int memory = ::memfd_create(partial.filename().c_str(), MFD_CLOEXEC);
  if (memory >= 0) {
    in_memory_.insert(memory);
    return memory;
  }
  return ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);  // a kernel without them
}

void HeldFiles::about_to_write(int descriptor, int64_t count, const fs::path& partial) {
  if (in_memory_.count(descriptor) && !has_room_for(count)) move_to_disk(descriptor, partial);
  (in_memory_.count(descriptor) ? bytes_ : without_room_) += count;
}

// The file goes on there, under the same descriptor.
void HeldFiles::move_to_disk(int descriptor, const fs::path& partial) {
  const Descriptor disk(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  require(disk.is_open(), Fault::Io, "cannot create ", partial.string(), ": ", std::strerror(errno));
  int64_t at = 0;
  move_bytes(descriptor, [&](const void* bytes, int64_t count) {
    for (const char* p = static_cast<const char*>(bytes); count > 0;) {
      const ssize_t done = ::pwrite(disk.number(), p, static_cast<size_t>(count), at);
      if (done < 0 && errno == EINTR) continue;
      require(done > 0, Fault::Io, "cannot write ", partial.string(), ": ", std::strerror(errno));
      p += done, at += done, count -= done;
    }
  });
  const bool same = ::dup3(disk.number(), descriptor, O_CLOEXEC) >= 0;
  require(same, Fault::Io, "cannot write ", partial.string(), ": ", std::strerror(errno));
  in_memory_.erase(descriptor);
  bytes_ -= at, without_room_ += at;
}

bool HeldFiles::keep(const fs::path& path, int descriptor) {
  if (!in_memory_.erase(descriptor)) return false;
  files_.push_back({path, Descriptor(descriptor)});
  return true;
}

void HeldFiles::write() {
  for (File& file : files_) {
    AtomicFile out(file.path);
    move_bytes(file.memory.number(), [&](const void* bytes, int64_t count) { out.write(bytes, count); });
    out.commit();
    file.memory.reset();
  }
  files_.clear();
}

}  // namespace apus
