// SPDX-License-Identifier: Apache-2.0
// Canonical rows by number, kept in a scratch file: memory holds only where each row lies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/rows/row.h"

namespace apus {

// A file without a name that is gone when it is closed. Several threads may read at a time, but not while one appends.
class ScratchFile {
 public:
  ScratchFile();
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  int64_t append(std::string_view bytes);  // gives its offset
  std::string read(int64_t offset, int64_t count) const;

 private:
  void flush();
  int descriptor_ = -1;
  int64_t written_ = 0;
  std::string pending_;
};

class RowStore {
 public:
  int64_t add(const Row& row);  // gives its number
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  Row row(int64_t number) const;
  Origin origin(int64_t number) const;

 private:
  struct Entry {
    int64_t offset, line;
    int32_t bytes, file;
    bool is_row;
  };
  ScratchFile file_;
  std::vector<Entry> entries_;
  std::vector<std::shared_ptr<const std::string>> files_;
};

}  // namespace apus
