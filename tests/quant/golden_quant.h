// SPDX-License-Identifier: Apache-2.0
// Golden quantised weights: the tensors that the original writers store, and what they stand for. A part stands in
// tests/data/quant; APUS_GOLDEN may name a folder whose quant/matrices holds them all.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "quant/pieces.h"
#include "tensor/safetensors_header.h"
#include "tests/paths.h"

namespace apus::golden {

// All cases or, without APUS_GOLDEN, those that stand here.
inline std::filesystem::path quantised_matrices() {
  const char* all = std::getenv("APUS_GOLDEN");
  const auto there = std::filesystem::path(all ? all : "") / "quant/matrices";
  return all && std::filesystem::exists(there) ? there : test::source_dir() / "tests/data/quant";
}

// The tensors of a safetensors file, by name without `prefix`.
inline quant::Pieces read_pieces(const std::filesystem::path& path, const std::string& prefix = "") {
  auto file = std::make_shared<const MappedFile>(path);
  quant::Pieces out;
  for (const auto& [name, entry] : parse_safetensors_header(file->data(), file->size(), path.string()).tensors)
    if (name.starts_with(prefix))
      out[name.substr(prefix.size())] = {entry.type, entry.shape, file->data() + entry.begin, entry.end - entry.begin,
                                         file};
  return out;
}

inline std::vector<float> floats(const StoredTensor& t) {
  std::vector<float> out(static_cast<size_t>(t.count()));
  std::memcpy(out.data(), t.data, static_cast<size_t>(t.bytes));
  return out;
}

struct QuantisedCase {
  std::string name;
  Json config;  // with a quantization_config
  quant::Shape shape;
  quant::StoredLayer layer() const {
    return {name, read_pieces(quantised_matrices() / (name + ".safetensors"), "layer.")};
  }
  quant::Pieces expected() const { return read_pieces(quantised_matrices() / (name + ".golden.safetensors")); }
};

// Those of one linear layer.
inline std::vector<QuantisedCase> quantised_cases() {
  std::vector<QuantisedCase> out;
  const auto path = quantised_matrices() / "index.json";
  for (const Json& entry : parse_json(read_file(path, 1 << 20), path.string())) {
    if (!entry.contains("quantization_config") || !entry.contains("shape") || entry["shape"].size() != 2) continue;
    out.push_back({entry["name"].get<std::string>(),
                   {{"quantization_config", entry["quantization_config"]}},
                   {entry["shape"][0].get<int64_t>(), entry["shape"][1].get<int64_t>()}});
  }
  return out;
}

}  // namespace apus::golden
