// SPDX-License-Identifier: Apache-2.0
// Element types of tensors in memory: how they correspond to those on disk, and their names on the command line.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

#include "tensor/disk_type.h"

namespace apus {

at::ScalarType torch_type(DiskType type);    // what a tensor of it becomes
DiskType disk_type_of(at::ScalarType type);  // Fault::Usage for types that cannot be written

// "float32", "fp32", "bfloat16", "bf16", "float16", "fp16", "half": what --torch_dtype and config.json say.
std::optional<at::ScalarType> parse_float_type(std::string_view name);
const char* float_type_name(at::ScalarType type);  // "bfloat16"

}  // namespace apus
