// SPDX-License-Identifier: Apache-2.0
// Files: whole reads with a limit, mapped reads, and writes that are complete or absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace apus {

// The whole file as text. Refuses files above `limit` bytes (Fault::Io with the path and the errno text).
std::string read_file(const std::filesystem::path& path, int64_t limit = int64_t{1} << 30);

// Written beside the target, synced, renamed into place; a crash leaves the old file or the new one.
void write_file_atomic(const std::filesystem::path& path, std::string_view text);

// Creates the folder and its parents and proves that files can be made in it.
void make_writable_dir(const std::filesystem::path& dir);

// A read-only mapping of a whole file. Pages come in as they are touched.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  void will_need(int64_t offset, int64_t bytes) const;  // read ahead
  void forget(int64_t offset, int64_t bytes) const;     // gives the memory back; later use reads the file again

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

// Gives the memory of the whole pages inside [data, data + bytes) back to the system.
// Only for memory mapped from a file: it is read from there again when it is next used.
void forget_mapped(const void* data, int64_t bytes);
// Asks the system to read [data, data + bytes) now, so that later use need not wait. It may decline.
void populate_mapped(const void* data, int64_t bytes);

// A file written beside its target: visible under its real name only after commit().
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();  // without commit(): the partial file is removed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* bytes, int64_t count);
  void write(std::string_view text) { write(text.data(), static_cast<int64_t>(text.size())); }
  void write_at(int64_t offset, const void* bytes, int64_t count);
  void commit();  // sync, rename, sync the folder

 private:
  std::filesystem::path path_, partial_;
  int descriptor_ = -1;
  int64_t offset_ = 0;
};

}  // namespace apus
