// SPDX-License-Identifier: Apache-2.0
// What the micro-batches of an update come to, read together: reading one has the host wait for the device.
#pragma once

#include <ATen/ops/stack.h>

#include <vector>

namespace apus {

class LossParts {
 public:
  // sum / over + balance * router
  void add(const at::Tensor& sum, double over) { parts_.push_back({sum.detach(), over, {}, 0}); }
  void add(const at::Tensor& sum, double over, const at::Tensor& router, double balance) {
    parts_.push_back({sum.detach(), over, router.detach(), balance});
  }
  double value() const {
    std::vector<at::Tensor> scalars;
    for (const Part& part : parts_)
      for (const at::Tensor& t : {part.sum, part.router})
        if (t.defined()) scalars.push_back(t.reshape({}));
    const std::vector<double> number = read(scalars);
    double loss = 0;
    size_t next = 0;
    for (const Part& part : parts_) {
      double own = number[next++] / part.over;
      if (part.router.defined()) own += part.balance * number[next++];
      loss += own;
    }
    return loss;
  }

 private:
  struct Part {
    at::Tensor sum;
    double over;
    at::Tensor router;
    double balance;
  };

  static std::vector<double> read(const std::vector<at::Tensor>& scalars) {
    std::vector<double> out;
    if (scalars.empty()) return out;
    if (scalars[0].is_cpu()) {
      for (const at::Tensor& t : scalars) out.push_back(t.item<double>());
      return out;
    }
    const at::Tensor all = at::stack(scalars).to(at::kCPU, at::kDouble);
    out.assign(all.data_ptr<double>(), all.data_ptr<double>() + all.numel());
    return out;
  }

  std::vector<Part> parts_;
};

}  // namespace apus
