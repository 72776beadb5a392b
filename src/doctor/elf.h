// SPDX-License-Identifier: Apache-2.0
// What a shared library says of itself, read from its bytes: nothing of it is loaded or run.
// ELF of 64 bits, little endian.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace apus {

class Elf {
 public:
  // Nothing with the reason when the bytes are no such library. The bytes must stay while the object is used.
  static std::optional<Elf> parse(std::string_view bytes, std::string* why_not);

  const std::vector<std::string>& needed() const { return needed_; }  // libraries it wants, e.g. "libc.so.6"
  const std::string& soname() const { return soname_; }
  const std::string& runpath() const { return runpath_; }  // folders it looks in, "a:b"; may hold $ORIGIN
  const char* machine() const;                             // "x86-64", "aarch64", "other"
  bool defines(std::string_view symbol) const;             // offers it to others
  bool defines_one_with(std::string_view part) const;      // a symbol whose name contains this
  bool mentions_one_with(std::string_view part) const;     // the same, its undefined symbols included

 private:
  std::string_view text_at(uint64_t offset) const;  // in the string table, bounded
  void each_symbol(const std::function<bool(std::string_view name, bool offered)>& stop) const;
  std::string_view symbols_, strings_;
  std::vector<std::string> needed_;
  std::string soname_, runpath_;
  uint16_t machine_ = 0;
};

// A library file with its description; the mapping lives as long as this.
struct LibraryFile {
  std::unique_ptr<MappedFile> bytes;
  std::optional<Elf> elf;
  std::string why_not;
};
LibraryFile read_library(const std::filesystem::path& real_path);

}  // namespace apus
