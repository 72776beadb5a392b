// SPDX-License-Identifier: Apache-2.0
// How the ranks of a training run share its work out: gradients summed, or slices of them, of the optimizer's state and
// of the parameters, as --deepspeed and --fsdp say.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/train.h"
#include "dist/mesh.h"
#include "engine/step_line.h"
#include "models/model.h"
#include "parallel/data_parallel.h"
#include "parallel/grouped_gradients.h"
#include "parallel/pipeline.h"
#include "parallel/sharded_gradients.h"
#include "parallel/sharded_model.h"
#include "train/optimizer.h"

namespace apus {

// `of_machine`: so many of the ranks are on one machine.
MeshSizes mesh_sizes(const ShardingOptions& options, int ranks, int of_machine);

// A model that is described and not loaded becomes its part on this mesh: of its parameters, and of its layers.
void place_on(Model& model, Mesh& mesh, const ShardingOptions& options);

// Between the ranks that hold one copy of the model together, which are neighbours; null: each holds all of it.
std::shared_ptr<StepLine> line_of_copy(const Mesh& mesh, World& world);

// This rank as a stage, and the connections to the others; nothing where there is one stage.
struct Stage {
  std::unique_ptr<Comm> down, up, round_down, round_up;
  std::unique_ptr<Pipeline> pipeline;
};
// The model is loaded, what is trained is known, and share_tokens() has been called.
Stage run_as_stage(Model& model, Mesh& mesh, World& world, at::ScalarType type, const ShardingOptions& options);

// A placed and loaded model whose parameters are slices; nothing when they are not.
std::unique_ptr<ShardedModel> shard_model(Model& model, Mesh& mesh, const Sharding& sharding);

// Its forward passes share out their tokens among the ranks of Axis::Cp, of the mesh as the rows see it: those that
// differ in no other axis are given the same rows; and, where `residual` says so, those between its matrices among the
// ranks that share out these. After shard_model() and share_training().
// -> among how many groups of the former keys and values go round.
int share_tokens(Model& model, Mesh& rows, bool residual = false);

// A model that is trained beside the policy, where ranks share it out: its backward passes come behind the policy's,
// and its parameters have the role before their names.
struct TrainedBeside {
  std::string role;
  ShardedModel* model;
};

struct SharedTraining {
  std::unique_ptr<ShardedModel> model;  // of --deepspeed zero3
  std::unique_ptr<ShardedGradients> slices;
  std::unique_ptr<GradientSum> sum;
  std::vector<std::unique_ptr<Comm>> comms;  // of the groups
  std::unique_ptr<GroupedGradients> groups;  // where ranks hold different parts
  std::vector<NamedParam> updated;           // what this rank's optimizer updates

  GradientSync* sync() const {
    return groups   ? static_cast<GradientSync*>(groups.get())
           : slices ? static_cast<GradientSync*>(slices.get())
                    : sum.get();
  }
};

// `params`: the trainable ones of all models. Models, mesh and world must outlive it. `owned`: where the optimizer's
// state is shared out, each parameter is one rank's as a whole.
SharedTraining share_training(Model& model, const std::vector<NamedParam>& params, Mesh& mesh, World& world,
                              const ShardingOptions& options, bool owned,
                              const std::vector<TrainedBeside>& others = {});
// The same where ranks share out the model's matrices, experts or layers, and not its rows as well.
// `models`: by what stands before the names of their parameters.
SharedTraining share_parts(const std::map<std::string, Model*>& models, const std::vector<NamedParam>& params,
                           World& world, const ShardingOptions& options);

}  // namespace apus
