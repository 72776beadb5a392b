// SPDX-License-Identifier: Apache-2.0
#include "doctor/elf.h"

#include <cstring>

#include "base/error.h"

namespace apus {

namespace {
constexpr uint64_t kSectionBytes = 64, kSymbolBytes = 24, kDynamicBytes = 16;
constexpr uint32_t kDynamic = 6, kDynamicSymbols = 11;                     // section types
constexpr uint64_t kNeeded = 1, kSoname = 14, kRpath = 15, kRunpath = 29;  // dynamic tags
constexpr size_t kMostNeeded = 1024;

template <class T>
T number(std::string_view bytes, uint64_t at) {  // the caller has checked the bounds
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The part of the file that a section names; empty when it lies outside.
std::string_view part(std::string_view file, uint64_t offset, uint64_t size) {
  return offset <= file.size() && size <= file.size() - offset ? file.substr(offset, size) : std::string_view();
}

struct ElfSection {
  uint32_t type = 0, link = 0;
  std::string_view bytes;
};

ElfSection section_at(std::string_view table, std::string_view file, uint64_t index) {
  if (index >= table.size() / kSectionBytes) return {};
  const uint64_t at = index * kSectionBytes;
  return {number<uint32_t>(table, at + 4), number<uint32_t>(table, at + 40),
          part(file, number<uint64_t>(table, at + 24), number<uint64_t>(table, at + 32))};
}
}  // namespace

std::string_view Elf::text_at(uint64_t offset) const {
  if (offset >= strings_.size()) return {};
  const std::string_view rest = strings_.substr(offset);
  const size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

std::optional<Elf> Elf::parse(std::string_view file, std::string* why_not) {
  const auto no = [&](const char* why) {
    *why_not = why;
    return std::nullopt;
  };
  if (file.size() < 64 || file.substr(0, 4) !=
                              "\x7f"
                              "ELF")
    return no("it is no ELF file");
  if (file[4] != 2 || file[5] != 1) return no("it is not of 64 bits and little endian");
  Elf elf;
  elf.machine_ = number<uint16_t>(file, 18);
  const auto count = number<uint16_t>(file, 60);
  if (number<uint16_t>(file, 58) != kSectionBytes) return no("its section table is missing");
  const std::string_view table = part(file, number<uint64_t>(file, 40), uint64_t{count} * kSectionBytes);
  ElfSection dynamic;
  for (uint64_t i = 0; i < table.size() / kSectionBytes; ++i) {
    const ElfSection section = section_at(table, file, i);
    if (section.type == kDynamic) dynamic = section;
    if (section.type != kDynamicSymbols) continue;
    elf.symbols_ = section.bytes;
    elf.strings_ = section_at(table, file, section.link).bytes;
  }
  if (elf.symbols_.empty() || elf.strings_.empty()) return no("it has no table of dynamic symbols");
  for (uint64_t at = 0; at + kDynamicBytes <= dynamic.bytes.size(); at += kDynamicBytes) {
    const auto tag = number<uint64_t>(dynamic.bytes, at);
    const std::string_view text = elf.text_at(number<uint64_t>(dynamic.bytes, at + 8));
    if (tag == kNeeded && elf.needed_.size() < kMostNeeded) elf.needed_.emplace_back(text);
    if (tag == kSoname) elf.soname_ = text;
    if (tag == kRunpath || (tag == kRpath && elf.runpath_.empty())) elf.runpath_ = text;
  }
  return elf;
}

void Elf::each_symbol(const std::function<bool(std::string_view, bool)>& stop) const {
  for (uint64_t at = 0; at + kSymbolBytes <= symbols_.size(); at += kSymbolBytes) {
    const auto binding = static_cast<uint8_t>(symbols_[at + 4]) >> 4;
    const bool offered = (binding == 1 || binding == 2 || binding == 10) && number<uint16_t>(symbols_, at + 6) != 0;
    if (stop(text_at(number<uint32_t>(symbols_, at)), offered)) return;
  }
}

bool Elf::defines(std::string_view symbol) const {
  bool found = false;
  each_symbol([&](std::string_view name, bool offered) { return found = offered && name == symbol; });
  return found;
}

bool Elf::defines_one_with(std::string_view piece) const {
  bool found = false;
  each_symbol([&](std::string_view name, bool offered) {
    return found = offered && name.find(piece) != std::string_view::npos;
  });
  return found;
}

bool Elf::mentions_one_with(std::string_view piece) const {
  bool found = false;
  each_symbol([&](std::string_view name, bool) { return found = name.find(piece) != std::string_view::npos; });
  return found;
}

const char* Elf::machine() const { return machine_ == 62 ? "x86-64" : machine_ == 183 ? "aarch64" : "other"; }

LibraryFile read_library(const std::filesystem::path& path) {
  LibraryFile file;
  try {
    file.bytes = std::make_unique<MappedFile>(path);
  } catch (const Error& error) {
    file.why_not = error.what();
    return file;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes->data()),
                               static_cast<size_t>(file.bytes->size()));
  file.elf = Elf::parse(bytes, &file.why_not);
  return file;
}

}  // namespace apus
