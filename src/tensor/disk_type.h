// SPDX-License-Identifier: Apache-2.0
// Element types of tensors on disk. No tensor library here.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace apus {

// Types a safetensors file may hold. The f8 kinds have no torch type in libtorch 1.13:
// they are widened to bf16, exactly.
enum class DiskType { F64, F32, F16, BF16, I64, I32, I16, I8, U8, Bool, F8E4M3, F8E5M2 };

std::optional<DiskType> disk_type(std::string_view name);  // "BF16" -> BF16
const char* disk_name(DiskType type);
int64_t disk_size(DiskType type);  // bytes of one element

}  // namespace apus
