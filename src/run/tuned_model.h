// SPDX-License-Identifier: Apache-2.0
// The model of a training run: loaded, with its adapter or its frozen parameters, and how it is saved.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/adapter.h"
#include "cli/sft.h"
#include "dist/mesh.h"

namespace apus {

struct TunedModel {
  std::unique_ptr<Model> model;
  std::optional<Adapter> adapter;  // of a LoRA run
  at::ScalarType dtype = at::kFloat;
  std::filesystem::path base;  // the folder of the weights and side files

  void save(const std::filesystem::path& dir, const SftOptions& options) const;
};

TunedModel  // `mesh` must outlive the model.
    TunedModel
    load_tuned_model(const SftOptions& options, Mesh& mesh);

}  // namespace apus
