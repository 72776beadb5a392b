// SPDX-License-Identifier: Apache-2.0
// Rows of tokens on their way to the ranks that hold their experts, and what the experts made of them on its way back.
#pragma once

#include "device/comm.h"
#include "nn/row_origins.h"
#include "ops/expert_pairs.h"

namespace apus {

// Shapes: M rows here, one for each token and expert of its, in the order of the experts; m the rows of all ranks for
// the experts that this rank holds, in their order too. Gradients go through, as dist/collective.h says.
class ExpertDispatch {
 public:
  // All ranks that share out the experts call it together, each with its own tokens. `host` and `device` connect them
  // for tensors that lie there. `seed`: of the dropout masks of this rank's micro-batch.
  ExpertDispatch(const ops::ExpertPairs& pairs, uint64_t seed, Comm& host, Comm& device);

  at::Tensor there(const at::Tensor& x_MD) const;  // -> [m, D]
  at::Tensor back(const at::Tensor& y_mD) const;   // -> [M, D]
  // The rows here, each a token of its own.
  const ops::ExpertPairs& own() const { return own_; }
  const RowOrigins& origins() const { return origins_; }  // of the rows here

 private:
  Comm& ranks_;
  std::vector<int64_t> send_, receive_;  // rows for each rank, from each rank
  at::Tensor order_m_, place_m_;         // rows as they came in the order of the experts, and the other way round
  ops::ExpertPairs own_;
  RowOrigins origins_;
};

}  // namespace apus
