// SPDX-License-Identifier: Apache-2.0
// One stage of a pipeline: a rank that runs some of a model's layers. What they give goes to the next stage, and the
// gradient comes back from there. All stages read the same rows, so each knows the sizes of what comes. Where a stage
// has several pieces of the layers, the last stage gives to the first one's next piece.
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
    std::vector<Range> layers;      // of each piece, as stage_layers() gives them
    at::TensorOptions activations;  // their type and device
    int64_t width = 0;              // numbers of a token
    int64_t experts = 0;            // of a mixture
    // Of each piece: whether anything in front of it is trained, so that a gradient goes there.
    std::vector<bool> trains_before;
  };
  // All carry tensors of the device among the stages, in order: towards the loss, and back. Apart, so that none waits
  // for another. The last two: from the last stage to the first one's next piece, and back; null where each has one.
  struct Ways {
    Comm &down, &up;
    Comm *round_down = nullptr, *round_up = nullptr;
  };
  Pipeline(Ways ways, Spec spec) : ways_(ways), spec_(std::move(spec)) {}

  int stage() const { return ways_.down.rank(); }
  int stages() const { return ways_.down.size(); }
  int pieces() const { return static_cast<int>(spec_.layers.size()) / stages(); }  // of each stage
  // The passes that follow are of this piece of the stage.
  void take(int piece) { piece_ = piece; }
  bool first() const { return number() == 0; }  // of all pieces
  bool last() const { return number() + 1 == spec_.layers.size(); }
  const Range& layers() const { return spec_.layers[number()]; }

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
  size_t number() const { return static_cast<size_t>(piece_ * stages() + stage()); }  // among all pieces
  int before() const { return (stage() + stages() - 1) % stages(); }                  // who runs the piece before it
  int behind() const { return (stage() + 1) % stages(); }
  Comm& way(Comm& straight, Comm* round, bool at_border) const { return at_border ? *round : straight; }
  Comm& down_from_before() const { return way(ways_.down, ways_.round_down, stage() == 0); }
  Comm& down_to_behind() const { return way(ways_.down, ways_.round_down, behind() == 0); }
  Comm& up_from_behind() const { return way(ways_.up, ways_.round_up, behind() == 0); }
  Comm& up_to_before() const { return way(ways_.up, ways_.round_up, stage() == 0); }
  at::Tensor receive(int64_t tokens, RouterLoss* router);
  void send(const at::Tensor& output, const RouterLoss* router);
  void start(Comm& way, const at::Tensor& t, int to);
  void send_sums(Comm& way, const RouterLoss& router, int to);
  void receive_sums(Comm& way, RouterLoss& router, int from);

  struct Sent {
    WorkPtr work;
    at::Tensor data;
  };
  const Ways ways_;
  const Spec spec_;
  int piece_ = 0;
  at::Tensor input_;
  std::deque<Sent> under_way_;
};

}  // namespace apus
