// SPDX-License-Identifier: Apache-2.0
// What stands beside a model whose vectors stand for texts: the files of the Python package sentence-transformers,
// which say how a vector is read off.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace apus {

struct VectorForm {
  bool mean = false;  // of all tokens; else the last one's
  int64_t width = 0;
};

void write_vector_files(const std::filesystem::path& dir, const VectorForm& form);

// Nothing where there is no modules.json. Fault::Model for a form that is not known here.
std::optional<VectorForm> read_vector_files(const std::filesystem::path& dir);

}  // namespace apus
