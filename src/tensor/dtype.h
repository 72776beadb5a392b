// SPDX-License-Identifier: Apache-2.0
// Element types: torch's, their names on disk and on the command line.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>

namespace apus {

// Types a safetensors file may hold. The f8 kinds have no torch type in libtorch 1.13: they are widened to bf16, exactly.
enum class DiskType { F64, F32, F16, BF16, I64, I32, I16, I8, U8, Bool, F8E4M3, F8E5M2 };

std::optional<DiskType> disk_type(std::string_view name);  // "BF16" -> BF16
const char* disk_name(DiskType type);
int64_t disk_size(DiskType type);                          // bytes of one element
at::ScalarType torch_type(DiskType type);                  // what a tensor of it becomes
DiskType disk_type_of(at::ScalarType type);                // Fault::Usage for types that cannot be written

// "float32", "fp32", "bfloat16", "bf16", "float16", "fp16", "half": what --torch_dtype and config.json say.
std::optional<at::ScalarType> parse_float_type(std::string_view name);
const char* float_type_name(at::ScalarType type);          // "bfloat16"

}  // namespace apus
