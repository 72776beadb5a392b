// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <array>

#include "base/error.h"

namespace apus {

namespace {
// In the order of DiskType; the f8 kinds become bf16.
constexpr std::array<at::ScalarType, 12> kTorch{at::kDouble, at::kFloat, at::kHalf,     at::kBFloat16,
                                                at::kLong,   at::kInt,   at::kShort,    at::kChar,
                                                at::kByte,   at::kBool,  at::kBFloat16, at::kBFloat16};
}  // namespace

at::ScalarType torch_type(DiskType type) { return kTorch[static_cast<size_t>(type)]; }

DiskType disk_type_of(at::ScalarType type) {
  for (size_t i = 0; i < kTorch.size(); ++i)
    if (type == kTorch[i]) return static_cast<DiskType>(i);
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
    case at::kFloat:
      return "float32";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kDouble:
      return "float64";
    default:
      return c10::toString(type);
  }
}

}  // namespace apus
