// SPDX-License-Identifier: Apache-2.0
// The further models of a training run: a teacher, reward models, a critic that is trained with the policy.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/train.h"
#include "dist/world.h"
#include "run/shared_training.h"
#include "run/tuned_model.h"
#include "train/optimizer.h"

namespace apus {

class OtherModels {
 public:
  // As the algorithm's options name them. Trained ones of a resumed run come from its checkpoint. `tuned` is the
  // policy; `mesh` must outlive the models.
  OtherModels(const TrainRun& options, const TunedModel& tuned, Mesh& mesh, World& world);

  std::map<std::string, std::vector<Model*>> by_role() const;
  std::map<std::string, Model*> trained() const;                       // by what their parameters' names begin with
  std::vector<NamedParam> params() const;                              // of the trained ones, under their role's name
  std::vector<std::pair<std::string, double>> learning_rates() const;  // by the beginning of those names
  void save(const std::filesystem::path& checkpoint) const;            // trained ones, each in a folder of its role
  std::vector<TrainedBeside> shared() const;                           // trained ones that ranks share out

 private:
  struct One {
    OtherModel asked;
    TrainRun options;  // a trained one's: the run's, with this model in the policy's place
    TunedModel tuned;
    std::unique_ptr<ShardedModel> sharded;  // where ranks share it out
  };
  std::vector<std::unique_ptr<One>> all_;
};

// Where answers are asked for, each rank makes passes of its own, as many as its answers take: all of these models are
// there for that.
std::function<std::shared_ptr<void>()> own_passes(const TrainRun& o, const Model& policy, const Model* reference,
                                                  const OtherModels& others);

}  // namespace apus
