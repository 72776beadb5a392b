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
  std::string name;                    // general.name
  std::filesystem::path imatrix = {};  // an importance matrix; empty: none
  std::function<void(int64_t done, int64_t of)> progress = [](int64_t, int64_t) {};
};

struct GgufReport {
  std::filesystem::path tower = {};  // the file of a model's tower; empty: it has none
  int64_t tensors = 0, bytes = 0, weights = 0;
  int64_t weighed = 0;  // matrices whose numbers' importance was known
  int64_t larger = 0;   // matrices whose rows are no whole blocks of their format, and that took a larger one
  double bits() const { return 8 * static_cast<double>(bytes) / static_cast<double>(weights); }  // of a weight
};

GgufReport export_gguf(const GgufExport& what);

}  // namespace apus
