// SPDX-License-Identifier: Apache-2.0
// Over which processes a model lies that answers or scores. Options of the commands that run one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "abilities/combination.h"
#include "cli/option_groups.h"

namespace apus {

struct PlanSpec;

struct RankOptions {
  int64_t tensor_model_parallel_size = 1;  // processes that share out the matrices of the model
  int64_t expert_model_parallel_size = 1;  // ... the experts of each layer
  int64_t data_parallel_size = 1;          // copies of the model, of commands that can have several
  double ddp_timeout = 1800;               // seconds
  // The same as other programs' scripts say it, of their own servers: where the model cannot be cut, a note.
  std::optional<int64_t> foreign_tensor;

  int64_t ranks_of_copy() const { return tensor_model_parallel_size * expert_model_parallel_size; }
  int64_t ranks_of_all() const { return ranks_of_copy() * data_parallel_size; }
  bool shares_parts() const { return ranks_of_copy() > 1; }
  void fields(OptionTable& v);  // after those of the groups that refuse the names of other programs
  void copies_field(OptionTable& v, const std::string& what_they_do);
  void resolve(const OptionTable& v);
  void check(const ModelOptions& model, const PlacementOptions& placement, bool quantised) const;
  // Of a plan: resolves and checks, and lays the model over so many devices.
  void prepare_plan(OptionTable& v, const ModelOptions& model, const PlacementOptions& placement, bool quantised,
                    int64_t devices);
  void lay_out(PlanSpec& spec, int64_t devices) const;
  // When the model is a folder here.
  void settle(const ModelOptions& model);

 private:
  Combination combination(const ModelOptions& model, bool quantised) const;
};

}  // namespace apus
