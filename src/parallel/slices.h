// SPDX-License-Identifier: Apache-2.0
// Parameters of which each rank has a slice: its rows, the rank-th part of dimension 0 (part_of). Here several of them
// travel as one message: flat, a segment for each rank, in which the rank's slices lie behind one another. Segments are
// of one size, so ranks with fewer rows end in padding. Or each parameter is one rank's as a whole, its owner's, whose
// slice is all of it and the others' empty: then the wholes lie behind one another, and everybody is told all.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "device/comm.h"
#include "dist/launch/mesh_layout.h"

namespace apus {

// The rank's rows of a whole tensor: a view.
at::Tensor rows_of(const at::Tensor& whole, int rank, int ranks);

// Whose each parameter of so many numbers is, so that all ranks have about as many.
std::vector<int> owners_of(const std::vector<int64_t>& numbers, int ranks);

class SliceMessage {
 public:
  using Tensors = std::vector<at::Tensor>;
  // `sums`: the type in which gradients are summed; absent: that of the options. `owners`: of each parameter; empty:
  // rows are shared out.
  SliceMessage(Comm& ranks, std::vector<std::vector<int64_t>> shapes, at::TensorOptions options,
               std::optional<at::ScalarType> sums = std::nullopt, std::vector<int> owners = {});

  struct Pending {
    WorkPtr work;
    at::Tensor flat, segment;
  };
  // Of a single parameter that all ranks share evenly: the message is the parameter itself.
  bool direct() const { return direct_; }
  // Everybody's slices become the wholes, which are written into at the end; from the start if it is direct.
  Pending start_gather(const Tensors& slices, const Tensors& wholes) const;
  void end_gather(Pending& pending, const Tensors& wholes) const;

  // The wholes summed over ranks, a slice for each. One that is not defined counts as zeros.
  Pending start_sum(const Tensors& wholes) const;
  Tensors end_sum(Pending& pending) const;  // views of the pending segment

 private:
  int64_t offset(size_t member, int rank) const { return offset_[static_cast<size_t>(rank)][member]; }
  at::Tensor place(const at::Tensor& flat, size_t member, int rank) const;  // of its slice, in its shape
  at::Tensor whole_in(const at::Tensor& flat, size_t member) const;
  Comm& ranks_;
  std::vector<std::vector<int64_t>> shapes_;
  const std::vector<int> owners_;
  std::vector<Range> owned_;  // of each rank, where it lies in a message of wholes
  at::TensorOptions options_, sums_;
  std::vector<std::vector<int64_t>> offset_;  // of [rank][member] in the rank's segment
  int64_t segment_ = 0;                       // elements
  bool direct_ = false;                       // the one whole is the message as it is
};

}  // namespace apus
