// SPDX-License-Identifier: Apache-2.0
// One communicator. A communicator of size 1 does nothing, and is never null.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace apus {

enum class Reduce { Sum, Max, Min, Avg };

struct Work {
  virtual ~Work() = default;
  virtual void wait() = 0;  // throws Fault::Comm when the time limit passes
};
using WorkPtr = std::unique_ptr<Work>;

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual WorkPtr all_reduce(at::Tensor t, Reduce op = Reduce::Sum) = 0;
  virtual WorkPtr all_gather(at::Tensor out, at::Tensor in) = 0;                      // out [size * n, ...]
  virtual WorkPtr all_gather_uneven(std::vector<at::Tensor> out, at::Tensor in) = 0;  // one tensor a rank
  virtual WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduce op = Reduce::Sum) = 0;
  virtual WorkPtr all_to_all(std::vector<at::Tensor> out, std::vector<at::Tensor> in) = 0;
  virtual WorkPtr broadcast(at::Tensor t, int root) = 0;
  virtual WorkPtr send(at::Tensor t, int to) = 0;
  virtual WorkPtr recv(at::Tensor t, int from) = 0;
  virtual void barrier() = 0;
};

std::unique_ptr<Comm> lone_comm();  // size 1

}  // namespace apus
