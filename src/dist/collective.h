// SPDX-License-Identifier: Apache-2.0
// Collectives that gradients go through. Each is linear in what all ranks put in, and its backward pass is its adjoint:
// summed over ranks, <A x, y> = <x, A' y>. So a loss that is the sum of the ranks' losses gets its true gradient.
// All ranks call the same ones in the same order, and the backward passes too. `ranks` must outlive the tape.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "device/comm.h"

namespace apus::collective {

// How many rows of dimension 0 each rank has, or gets; they may differ, and may be none.
using Rows = std::vector<int64_t>;

// The sum over ranks, on all of them. Adjoint: the same. `known`: the result, if it is there already: nothing is sent,
// and its backward pass is as it would be.
at::Tensor all_reduce(const at::Tensor& x, Comm& ranks, const at::Tensor& known = {});
// The ranks' rows one behind the other, on all of them. Adjoint: reduce_scatter.
at::Tensor all_gather(const at::Tensor& x, Comm& ranks, const Rows& rows);
// The sum over ranks, of which each gets its rows. Adjoint: all_gather. `known`: as above.
at::Tensor reduce_scatter(const at::Tensor& x, Comm& ranks, const Rows& rows, const at::Tensor& known = {});
// x has send[r] rows for each rank r, one behind the other; the result has receive[r] rows from each. Adjoint: the
// same with the two exchanged.
at::Tensor all_to_all(const at::Tensor& x, Comm& ranks, const Rows& send, const Rows& receive);
// The root's values on all ranks; what others put in gives the shape alone. Adjoint: the sum for the root, else 0.
at::Tensor broadcast(const at::Tensor& x, Comm& ranks, int root);

}  // namespace apus::collective
