// SPDX-License-Identifier: Apache-2.0
// The communicator of one rank: every collective is a copy or nothing.
#include "device/comm.h"

#include "base/error.h"

namespace apus {

namespace {
struct Done final : Work {
  void wait() override {}
};

class LoneComm final : public Comm {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  WorkPtr all_reduce(at::Tensor, Reduce) override { return done(); }
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override { return copy(out, in); }
  WorkPtr all_gather_uneven(std::vector<at::Tensor> out, at::Tensor in) override { return copy(only(out), in); }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduce) override { return copy(out, in); }
  WorkPtr all_to_all(std::vector<at::Tensor> out, std::vector<at::Tensor> in) override {
    return copy(only(out), only(in));
  }
  WorkPtr broadcast(at::Tensor, int root) override {
    require(root == 0, Fault::Bug, "broadcast from rank ", root, " in a communicator of one rank");
    return done();
  }
  WorkPtr send(at::Tensor, int to) override { fail(Fault::Bug, "send to rank ", to, " in a communicator of one rank"); }
  WorkPtr recv(at::Tensor, int from) override {
    fail(Fault::Bug, "receive from rank ", from, " in a communicator of one rank");
  }
  void barrier() override {}

 private:
  static WorkPtr done() { return std::make_unique<Done>(); }
  static const at::Tensor& only(const std::vector<at::Tensor>& tensors) {
    require(tensors.size() == 1, Fault::Bug, tensors.size(), " tensors for a communicator of one rank");
    return tensors[0];
  }
  static WorkPtr copy(const at::Tensor& out, const at::Tensor& in) {
    require(out.numel() == in.numel(), Fault::Bug, "a collective of one rank from ", in.numel(), " to ", out.numel(),
            " elements");
    if (!out.is_same(in)) out.view(in.sizes()).copy_(in);
    return done();
  }
};
}  // namespace

std::unique_ptr<Comm> lone_comm() { return std::make_unique<LoneComm>(); }

}  // namespace apus
