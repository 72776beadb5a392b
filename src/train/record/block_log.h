// SPDX-License-Identifier: Apache-2.0
// A file of records in blocks of 32 KiB, laid out as LevelDB lays out its log, with zlib's CRC-32: what the clients of
// services that show runs keep while they are offline.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace apus {

class BlockLog {
 public:
  // first: what tells the kind of file, before the first record.
  BlockLog(const std::filesystem::path& path, std::string_view first);
  ~BlockLog();
  BlockLog(const BlockLog&) = delete;
  BlockLog& operator=(const BlockLog&) = delete;
  void record(std::string_view bytes);  // in the file when it returns

 private:
  void write(std::string_view bytes);
  std::filesystem::path path_;
  int descriptor_ = -1;
  size_t place_ = 0;  // within the block
};

}  // namespace apus
