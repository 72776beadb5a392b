// SPDX-License-Identifier: Apache-2.0
// The model of a training run: loaded, with its adapter or its frozen parameters, and how it is saved.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/adapter.h"
#include "checkpoint/side_files.h"
#include "checkpoint/weights.h"
#include "cli/train.h"
#include "dist/mesh.h"
#include "models/spec/score_head.h"
#include "train/actors.h"

namespace apus {

struct TunedModel {
  std::unique_ptr<Model> model;
  std::optional<Adapter> adapter;  // of a LoRA run
  at::ScalarType dtype = at::kFloat;
  std::filesystem::path base;  // the folder of the weights and side files, while it was loaded
  Json config;                 // what stood there
  SideFiles side_files;
  Carried carried;  // what of it is saved again, though nothing here reads it

  // The base model, where it is there still: what a LoRA run began from. Absent when weights of the base are changed
  // (full, modules_to_save, biases, PiSSA).
  std::optional<Reference> reference() const;
  void save(const std::filesystem::path& dir, const TrainRun& options) const;
  // By the beginnings of parameters' names, where the options give towers rates of their own.
  std::vector<std::pair<std::string, double>> learning_rates(const TrainRun& options) const;
};

// `mesh` must outlive the model.
TunedModel load_tuned_model(const TrainRun& options, Mesh& mesh, Head head);

// config.json of a model with this head, made of the one in `dir`; Fault::Usage when that has a head of another size.
Json score_config(Json config, const ScoreHead& head, const std::filesystem::path& dir);

}  // namespace apus
