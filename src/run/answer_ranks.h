// SPDX-License-Identifier: Apache-2.0
// The processes of a command that answers or scores: copies of the model, each over as many ranks as share it out. The
// first rank of a copy leads: its engine schedules.
#pragma once

#include <memory>
#include <string>

#include "cli/answer_ranks.h"
#include "dist/mesh.h"
#include "models/model.h"

namespace apus {

class AnswerRanks {
 public:
  AnswerRanks(const RankOptions& options, const std::string& device);

  World& world() { return world_; }
  const DeviceChoice& device() const { return world_.device(); }
  int copies() const { return world_.size() / of_copy_; }
  int copy() const { return world_.rank() / of_copy_; }
  bool leads() const { return world_.rank() % of_copy_ == 0; }
  bool shares_parts() const { return of_copy_ > 1; }
  // A model that is described and not loaded becomes its part on this rank.
  void place(Model& model);
  // Between the ranks of this copy, for tensors on the host; a new one each time. All of them call it together.
  std::unique_ptr<Comm> line();
  // Between those that lead, likewise: what copies tell each other.
  std::unique_ptr<Comm> leaders();

 private:
  const int of_copy_;
  World world_;
  std::unique_ptr<Mesh> mesh_;  // null: every rank holds everything
};

}  // namespace apus
