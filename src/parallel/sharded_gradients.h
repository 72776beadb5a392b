// SPDX-License-Identifier: Apache-2.0
// Gradients of which each rank gets the sum of its own slice, so that the optimizer holds and updates that slice alone:
// what DeepSpeed calls ZeRO. They travel in buckets while the backward pass still runs, and the whole ones go.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/gradient_sync.h"
#include "parallel/slices.h"

namespace apus {

class GradientHook;  // parallel/gradient_hook.h

class ShardedGradients final : public GradientSync {
 public:
  struct Param {
    std::string name;
    at::Tensor whole;  // the leaf of the tape, which gets the gradients
    at::Tensor slice;  // what the optimizer updates; its gradient is set here. It may lie on the host
    int owner = -1;    // whose all of it is; below 0: ranks have rows of it
    int unit = 0;      // with others that are complete at the same time, numbered as the backward pass meets them
    // Ranks that hold the same slice, whose gradients of it are summed as well; null: this one alone.
    Comm* copies = nullptr;
  };
  struct Spec {
    int64_t bucket_bytes = 25 << 20;
    // False: whole gradients add up over the micro-batches of an update, and are summed over ranks once (ZeRO-1). True:
    // each micro-batch leaves its slice behind.
    bool each_micro_batch = false;
    bool wide = false;  // sums, over micro-batches and ranks, in f32
    // A bucket leaves when complete() names its unit, instead of when its gradients have come.
    bool by_unit = false;
    // What lets go of wholes that come and go; such wholes are gathered from the slices when they are needed. Without
    // it every rank keeps the wholes, which learn after the optimizer's step what the slices became.
    std::function<void()> let_go = {};
    // Where all parameters have the same copies: how this rank's slice is written and read.
    std::optional<Slice> slice = {};
  };
  // In the same order on all ranks. `ranks`, who share the parameters out, carries tensors of the wholes' device;
  // `host` those of the host, of all that bring gradients.
  ShardedGradients(std::vector<Param> params, Comm& ranks, Comm& host, Spec spec);
  ~ShardedGradients() override;

  void begin(bool last = true) override;
  void finish(bool last = true) override;
  bool in_step() const override { return spec_.each_micro_batch; }
  bool passes_in_step() const override { return spec_.by_unit; }
  bool sliced() const override { return true; }
  std::optional<Slice> slice() const override { return spec_.slice; }
  double of_all(double squares) override;
  void updated() override;
  void rest() override;
  // Of all units up to this one the backward pass has made the gradients.
  void complete(int unit);

  size_t buckets() const;
  int64_t sent_early() const { return sent_early_; }  // buckets of the last micro-batch, before its finish()
  // The most bytes of whole gradients that were there at once.
  int64_t most_whole_bytes() const { return most_whole_bytes_; }

 private:
  struct Member;
  struct Bucket;
  void arrived(Member& member);
  void send(size_t bucket);
  void absorb_oldest();

  Comm &ranks_, &host_;
  const Spec spec_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<Bucket> buckets_;
  struct Sum {
    size_t bucket;
    SliceMessage::Pending pending;
  };
  std::deque<Sum> under_way_;
  size_t next_ = 0;  // bucket to leave: all ranks send them in this order
  bool armed_ = false, open_ = false;
  int64_t sent_early_ = 0, most_whole_bytes_ = 0;
};

// A rank's slices of whole parameters, views of their memory. `owned`: each parameter is one rank's.
std::vector<ShardedGradients::Param> sliced_params(const std::vector<std::pair<std::string, at::Tensor>>& wholes,
                                                   const Comm& ranks, bool on_host, bool owned = false);

}  // namespace apus
