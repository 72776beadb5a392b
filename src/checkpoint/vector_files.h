// SPDX-License-Identifier: Apache-2.0
// What stands beside a model whose vectors stand for texts: the files of the Python package sentence-transformers,
// which say how a vector is read off.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/spec/pooling_kind.h"

namespace apus {

// A layer that vectors go through behind the pooling: act(x W' + b), in a folder of its own.
struct VectorLayer {
  std::string folder;
  int64_t in = 0, out = 0;
  bool bias = true;
  std::string act = "identity";  // or tanh, gelu, relu, silu
};

struct VectorForm {
  Pooling pooling = Pooling::Last;
  std::vector<VectorLayer> layers = {};
  bool normalised = true;  // to length one
  int64_t width = 0;
  // What is put in front of texts, by name; and the one that is where nobody says it. "": none.
  std::map<std::string, std::string> prompts = {};
  std::string usual_prompt = "";
};

void write_vector_files(const std::filesystem::path& dir, const VectorForm& form);

// Nothing where there is no modules.json. Fault::Model for a form that is not known here.
std::optional<VectorForm> read_vector_files(const std::filesystem::path& dir);

}  // namespace apus
