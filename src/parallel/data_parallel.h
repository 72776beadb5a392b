// SPDX-License-Identifier: Apache-2.0
// Gradients summed over data-parallel ranks, in buckets that travel while the backward pass still runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/comm.h"
#include "parallel/gradient_sync.h"

namespace apus {

class GradientSum final : public GradientSync {
 public:
  struct Spec {
    int64_t bucket_bytes = 25 << 20;
    bool wide = false;  // sums, over micro-batches and ranks, in f32
  };
  // Leaves of the tape, in the same order on all ranks. `ranks` carries tensors of their device, and outlives this.
  GradientSum(std::vector<std::pair<std::string, at::Tensor>> params, Comm& ranks, Spec spec);
  ~GradientSum() override;

  // Before the backward pass of the last micro-batch: from now on a bucket leaves when its gradients are complete.
  void begin(bool last = true) override;
  // After it (or without any begin()): sends what has not left, and waits.
  void finish(bool last = true) override;

  int64_t sent_early() const { return sent_early_; }  // buckets of the last step that left during the backward pass
  size_t buckets() const;

 private:
  struct Member;
  struct Bucket;
  void arrived(Member& member);
  void send_complete();
  void send(Bucket& bucket);

  Comm& ranks_;
  const bool wide_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<Bucket> buckets_;
  size_t next_ = 0;  // bucket to leave: all ranks send them in this order
  bool armed_ = false;
  int64_t sent_early_ = 0;
};

}  // namespace apus
