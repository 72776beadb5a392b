// SPDX-License-Identifier: Apache-2.0
// One stage of a pipeline: a rank that runs some of a model's layers. What they give goes to the next stage, and the
// gradient comes back from there. All stages read the same rows, so each knows the sizes of what comes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <deque>
#include <utility>
#include <vector>

#include "device/comm.h"
#include "dist/launch/mesh_layout.h"

namespace apus {

class Model;        // models/model.h
struct RouterLoss;  // nn/moe.h

class Pipeline {
 public:
  struct Spec {
    std::vector<Range> layers;      // of each stage
    at::TensorOptions activations;  // their type and device
    int64_t width = 0;              // numbers of a token
    int64_t experts = 0;            // of a mixture
    // Whether anything is trained in the stages before this one, and up to it: a gradient goes there, and comes here.
    bool gives_gradient = true, gets_gradient = true;
  };
  // Both carry tensors of the device among the stages, in order: one towards the loss, the other back. Apart, so that
  // neither waits for the other.
  Pipeline(Comm& down, Comm& up, Spec spec) : down_(down), up_(up), spec_(std::move(spec)) {}

  int stage() const { return down_.rank(); }
  int stages() const { return down_.size(); }
  bool first() const { return stage() == 0; }
  bool last() const { return stage() + 1 == stages(); }
  const Range& layers() const { return spec_.layers[static_cast<size_t>(stage())]; }

  // From now on the model runs this stage's layers alone: its forward passes begin with what the stage before gives,
  // and give what the next one has been sent. Behind a runner that shares out tokens. The model and this object
  // must outlive each other.
  void run(Model& model);

  // Behind a forward pass with gradients on: what it began with, a leaf of the tape; undefined where no gradient of it
  // is wanted.
  at::Tensor take_input() { return std::exchange(input_, at::Tensor()); }
  // Behind that pass' backward pass, in this order of calls: the gradient of what it gave, undefined where nothing is
  // trained up to here; and the one of what it began with. A balance loss, null: there is none, learns the sums of the
  // layers behind this stage, without which its own gradients are not known.
  at::Tensor gradient_of(const at::Tensor& output, RouterLoss* router);
  void send_gradient_of(const at::Tensor& input, const RouterLoss* router);
  // What has been sent has arrived.
  void settle();

 private:
  class Runner;
  at::Tensor receive(int64_t tokens, RouterLoss* router);
  void send(const at::Tensor& output, const RouterLoss* router);
  void start(Comm& way, const at::Tensor& t, int to);
  void send_sums(Comm& way, const RouterLoss& router, int to);
  void receive_sums(Comm& way, RouterLoss& router, int from);

  struct Sent {
    WorkPtr work;
    at::Tensor data;
  };
  Comm &down_, &up_;
  const Spec spec_;
  at::Tensor input_;
  std::deque<Sent> under_way_;
};

}  // namespace apus
