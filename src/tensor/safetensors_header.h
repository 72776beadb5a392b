// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: which tensors it holds, and where. No tensor library here.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "tensor/disk_type.h"

namespace apus {

struct TensorEntry {
  DiskType type;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes from the start of the file
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
};

// Checks everything: lengths, types, bounds, overlaps, holes, duplicate names. `where` names the file in messages.
SafetensorsHeader parse_safetensors_header(const std::byte* data, int64_t size, const std::string& where);

}  // namespace apus
