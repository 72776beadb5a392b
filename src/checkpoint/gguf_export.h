// SPDX-License-Identifier: Apache-2.0
// A checkpoint written as one GGUF file: memory is a few rows of one tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "gguf/mix.h"

namespace apus {

struct GgufExport {
  std::filesystem::path from, to;  // a checkpoint folder, and the file
  const GgufMix* mix = nullptr;
  std::string name;  // general.name
  std::function<void(int64_t done, int64_t of)> progress = [](int64_t, int64_t) {};
};

struct GgufReport {
  int64_t tensors = 0, bytes = 0;
};

GgufReport export_gguf(const GgufExport& what);

}  // namespace apus
