// SPDX-License-Identifier: Apache-2.0
// Files that are written later: what an AtomicFile is given stays in memory, and goes to disk when it is asked to, from
// any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "base/descriptor.h"

namespace apus {

class HeldFiles {
 public:
  // `room`: bytes of memory that may still be taken; asked again and again. What does not fit is written at once.
  explicit HeldFiles(std::function<int64_t()> room) : room_(std::move(room)) {}
  HeldFiles(const HeldFiles&) = delete;
  HeldFiles& operator=(const HeldFiles&) = delete;

  // Holds what `work` writes with AtomicFile on this thread. Folders are made at once.
  void hold(const std::function<void()>& work);
  // In the order in which they were committed; lets go of their memory on the way. Fault::Io.
  void write();
  int64_t bytes() const { return bytes_; }                      // that were held
  int64_t bytes_without_room() const { return without_room_; }  // that were not, and had to be written at once

  // For AtomicFile.
  static HeldFiles* here();  // of this thread; null: files are written as they come
  int open(const std::filesystem::path& partial);
  void about_to_write(int descriptor, int64_t count, const std::filesystem::path& partial);
  bool keep(const std::filesystem::path& path, int descriptor);  // false: it lies on disk

 private:
  struct File {
    std::filesystem::path path;
    Descriptor memory;
  };
  bool has_room_for(int64_t count);
  void move_to_disk(int descriptor, const std::filesystem::path& partial);

  std::function<int64_t()> room_;
  int64_t bytes_ = 0, without_room_ = 0, left_ = 0;  // left_: of the room, when it was last asked for
  std::set<int> in_memory_;
  std::vector<File> files_;
};

}  // namespace apus
