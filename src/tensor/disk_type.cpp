// SPDX-License-Identifier: Apache-2.0
#include "tensor/disk_type.h"

#include <array>

namespace apus {

namespace {
struct Row {
  DiskType type;
  const char* name;
  int64_t size;
};
constexpr std::array<Row, 12> kTypes{{{DiskType::F64, "F64", 8},
                                      {DiskType::F32, "F32", 4},
                                      {DiskType::F16, "F16", 2},
                                      {DiskType::BF16, "BF16", 2},
                                      {DiskType::I64, "I64", 8},
                                      {DiskType::I32, "I32", 4},
                                      {DiskType::I16, "I16", 2},
                                      {DiskType::I8, "I8", 1},
                                      {DiskType::U8, "U8", 1},
                                      {DiskType::Bool, "BOOL", 1},
                                      {DiskType::F8E4M3, "F8_E4M3", 1},
                                      {DiskType::F8E5M2, "F8_E5M2", 1}}};
}  // namespace

std::optional<DiskType> disk_type(std::string_view name) {
  for (const auto& r : kTypes)
    if (name == r.name) return r.type;
  return std::nullopt;
}

const char* disk_name(DiskType type) { return kTypes[static_cast<size_t>(type)].name; }
int64_t disk_size(DiskType type) { return kTypes[static_cast<size_t>(type)].size; }

}  // namespace apus
