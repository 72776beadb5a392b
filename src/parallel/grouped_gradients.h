// SPDX-License-Identifier: Apache-2.0
// Gradients of a model whose parameters ranks share out: the gradient of a part is the sum over all ranks that hold the
// same part, as collectives' adjoints leave to each what its own copy adds (dist/collective.h).
#pragma once

#include <memory>
#include <vector>

#include "device/comm.h"
#include "nn/module.h"
#include "parallel/gradient_sync.h"

namespace apus {

// The ranks of the world, rising, that hold the same part of the parameter as this one, however its slices are kept.
std::vector<int> holders(const Param& param, const MeshLayout& layout);

// Those of them that also hold the same rows of it, where ranks shard the parameters.
std::vector<int> slice_holders(const Param& param, const MeshLayout& layout);

class GroupedGradients final : public GradientSync {
 public:
  struct Group {
    std::unique_ptr<GradientSync> sync;  // null: this rank alone holds these parameters
    std::vector<at::Tensor> updated;     // what the optimizer updates of them here
    int copies = 1;                      // ranks that each have all of these gradients
    bool wide = false;                   // without a sync: micro-batches add up in f32
  };
  // In the same order on all ranks, of which `world` carries tensors of the host. `in_step`: ranks exchange tokens in
  // every pass, as those that hold different experts do.
  GroupedGradients(std::vector<Group> groups, Comm& world, bool in_step)
      : groups_(std::move(groups)), world_(world), in_step_(in_step) {}

  void begin(bool last = true) override;
  void finish(bool last = true) override;
  bool in_step() const override;
  bool passes_in_step() const override { return in_step_; }
  // Every rank writes the state of what it holds.
  bool sliced() const override { return true; }
  double of_all(double squares) override;
  void updated() override;
  void rest() override;

 private:
  std::vector<Group> groups_;
  Comm& world_;
  bool in_step_;
};

}  // namespace apus
