// SPDX-License-Identifier: Apache-2.0
// Turns the padded batches of the golden files into packed ones: the tokens that count, and where they stood.
#pragma once

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <vector>

#include "nn/step.h"
#include "tests/golden.h"

namespace apus::golden {

struct Packed {
  std::vector<std::vector<int64_t>> ids;
  // Labels shifted: the label of token t is the token after it, -100 when ignored.
  std::vector<int64_t> flat, labels;
  std::vector<int64_t> place;  // index into the padded [B * S]
  std::vector<int32_t> lengths;
};

// `which`: left, right, packed, gen.
inline Packed unpad(const Case& c, const std::string& which) {
  const at::Tensor ids = c.tensor(which + "/input_ids");
  const bool labelled = c.has(which + "/labels");
  const int64_t *id = ids.data_ptr<int64_t>(), rows = ids.size(0), width = ids.size(1);
  const int64_t* label = labelled ? c.tensor(which + "/labels").data_ptr<int64_t>() : nullptr;
  Packed p;
  const auto add_row = [&](const std::vector<int64_t>& places) {
    std::vector<int64_t> row;
    for (size_t i = 0; i < places.size(); ++i) {
      row.push_back(id[places[i]]);
      p.flat.push_back(id[places[i]]);
      p.place.push_back(places[i]);
      p.labels.push_back(label && i + 1 < places.size() ? label[places[i + 1]] : -100);
    }
    p.lengths.push_back(static_cast<int32_t>(row.size()));
    p.ids.push_back(std::move(row));
  };
  if (which == "packed") {
    int64_t at = 0;
    for (const auto& length : c.json.at("packed_lens")) {
      std::vector<int64_t> places;
      for (int64_t i = 0; i < length.get<int64_t>(); ++i) places.push_back(at++);
      add_row(places);
    }
    return p;
  }
  const at::Tensor mask = c.tensor(which + "/attention_mask");
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int64_t> places;
    for (int64_t i = r * width; i < (r + 1) * width; ++i)
      if (mask.data_ptr<int64_t>()[i]) places.push_back(i);
    add_row(places);
  }
  return p;
}

// Every folder that holds forward passes, gradients and answers of a model that reads text only, or of one that sees or
// hears, in the order of their names.
inline std::vector<std::string> models_that(bool see) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(models())) {
    const auto numbers = entry.path() / "golden.json";
    if (!std::filesystem::exists(numbers)) continue;
    const Json json = Json::parse(read_file(numbers));
    if (!json.contains("cases") || !json.contains("grad") || !json.contains("gen")) continue;
    const Json config = read_model_config(entry.path() / "checkpoint");
    const auto says = [&](const char* part) { return config.contains(part); };
    const bool senses = says("vision_config") || says("vit_config") || says("visual_tokenizer_config") ||
                        says("audio_config") || says("thinker_config") || says("max_source_positions");
    if (senses == see) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}
inline std::vector<std::string> text_models() { return models_that(false); }
inline std::vector<std::string> seeing_models() { return models_that(true); }

inline at::Tensor ids_tensor(const std::vector<int64_t>& ids, at::Device device) {
  return at::tensor(ids, at::kLong).to(device);
}

}  // namespace apus::golden
