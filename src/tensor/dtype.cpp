// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <array>

#include "base/error.h"

namespace apus {

namespace {
struct Row {
  DiskType type;
  const char* name;
  int64_t size;
  at::ScalarType torch;
};
constexpr std::array<Row, 12> kTypes{{{DiskType::F64, "F64", 8, at::kDouble},
                                      {DiskType::F32, "F32", 4, at::kFloat},
                                      {DiskType::F16, "F16", 2, at::kHalf},
                                      {DiskType::BF16, "BF16", 2, at::kBFloat16},
                                      {DiskType::I64, "I64", 8, at::kLong},
                                      {DiskType::I32, "I32", 4, at::kInt},
                                      {DiskType::I16, "I16", 2, at::kShort},
                                      {DiskType::I8, "I8", 1, at::kChar},
                                      {DiskType::U8, "U8", 1, at::kByte},
                                      {DiskType::Bool, "BOOL", 1, at::kBool},
                                      {DiskType::F8E4M3, "F8_E4M3", 1, at::kBFloat16},
                                      {DiskType::F8E5M2, "F8_E5M2", 1, at::kBFloat16}}};
const Row& row(DiskType type) { return kTypes[static_cast<size_t>(type)]; }
}  // namespace

std::optional<DiskType> disk_type(std::string_view name) {
  for (const auto& r : kTypes)
    if (name == r.name) return r.type;
  return std::nullopt;
}

const char* disk_name(DiskType type) { return row(type).name; }
int64_t disk_size(DiskType type) { return row(type).size; }
at::ScalarType torch_type(DiskType type) { return row(type).torch; }

DiskType disk_type_of(at::ScalarType type) {
  for (const auto& r : kTypes)
    if (type == r.torch) return r.type;
  fail(Fault::Usage, "tensors of type ", c10::toString(type), " cannot be written to safetensors");
}

std::optional<at::ScalarType> parse_float_type(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "float32" || name == "fp32" || name == "float") return at::kFloat;
  if (name == "bfloat16" || name == "bf16") return at::kBFloat16;
  if (name == "float16" || name == "fp16" || name == "half") return at::kHalf;
  return std::nullopt;
}

const char* float_type_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return "float32";
    case at::kBFloat16: return "bfloat16";
    case at::kHalf: return "float16";
    case at::kDouble: return "float64";
    default: return c10::toString(type);
  }
}

}  // namespace apus
