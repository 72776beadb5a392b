// SPDX-License-Identifier: Apache-2.0
// A model of which each rank holds a slice of every parameter (ZeRO-3, FSDP). A layer's parameters are whole only while
// it is computed: they are gathered a layer ahead and let go behind it, in the forward pass
// and again in the backward pass.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "models/layer_runner.h"
#include "models/model.h"
#include "parallel/sharded_gradients.h"

namespace apus {

class ShardedModel {
 public:
  struct Spec {
    bool release_after_forward = true;  // false: layers stay whole until their backward pass has ended
    bool slices_on_host = false;        // offload: slices lie in host memory, wholes on the device
    at::Device device = at::Device(at::kCPU);
  };
  // The model is placed on a mesh that cuts its parameters among `ranks`, and its slices are loaded. What is trained is
  // known (Param::trainable). From here on the model runs through this, which must live as long as it is used.
  ShardedModel(Model& model, Comm& ranks, Spec spec);
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  // In the order of the backward pass.
  std::vector<ShardedGradients::Param> trained(int first_unit = 0) const;
  // Those that hear of units whose gradients are complete.
  // `first_unit`: of this model's, behind those of models whose backward passes come before its own.
  void tell(ShardedGradients* gradients, int first_unit = 0) { gradients_ = gradients, first_unit_ = first_unit; }
  int units() const { return static_cast<int>(units_.size()); }
  // Every parameter is its slice again: after an update, before the model is saved.
  void release();
  // Every parameter is whole until the result is let go of (LayerRunner::alone).
  std::shared_ptr<void> whole();
  // Parameters are slices while `work` runs, also where they are whole around it: what is saved is gathered by itself.
  void as_slices(const std::function<void()>& work);

  int64_t slice_bytes() const;
  int64_t most_whole_bytes() const { return most_bytes_; }  // that were there at once

 private:
  struct Shard;
  struct Unit;
  class Runner;
  friend class Runner;
  void start(size_t unit);
  void need(size_t unit);
  void release(size_t unit);
  void back_at(size_t unit);  // the backward pass begins with it, and is done with those behind it

  Model& model_;
  Comm& ranks_;
  const Spec spec_;
  std::vector<std::unique_ptr<Unit>> units_;  // embedding, layers, final norm and head
  ShardedGradients* gradients_ = nullptr;
  int first_unit_ = 0;
  bool backward_waits_ = false;  // for a forward pass that was made
  int wholes_ = 0;               // that were asked for and are held
  int64_t bytes_ = 0, most_bytes_ = 0;
};

}  // namespace apus
