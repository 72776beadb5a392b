// SPDX-License-Identifier: Apache-2.0
// Sum of squares over tensors (the gradient norm). The reference sums short runs on the device in f32 (f64 for f64) and
// adds the runs up on the host in f64, so that it needs neither f64 on the device nor a copy of the tensor.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "ops/op.h"
#include "ops/ops.h"

namespace apus::ops {
namespace {

constexpr int64_t run = 1024;
constexpr int64_t block = run * 1024;  // elements widened at a time

// Sums of the squares of a tensor's runs, the last run being shorter: in at least f32, on its device.
void add_run_sums(const at::Tensor& tensor, std::vector<at::Tensor>& sums) {
  const at::Tensor flat = tensor.detach().reshape({-1});
  for (int64_t begin = 0; begin < flat.numel(); begin += block) {
    const at::Tensor squares = widen(flat.narrow(0, begin, std::min(block, flat.numel() - begin))).square();
    const int64_t whole = squares.numel() / run * run;
    sums.push_back(squares.narrow(0, 0, whole).view({-1, run}).sum(-1));
    if (whole < squares.numel()) sums.push_back(squares.narrow(0, whole, squares.numel() - whole).sum().view({1}));
  }
}

// The host waits once for each device and type.
at::Tensor reference(at::TensorList tensors) {
  std::map<std::tuple<c10::DeviceType, int, at::ScalarType>, std::vector<at::Tensor>> sums;
  for (const at::Tensor& tensor : tensors)
    if (tensor.numel() > 0)
      add_run_sums(tensor, sums[{tensor.device().type(), tensor.device().index(), wide_type(tensor)}]);
  at::Tensor sum = at::zeros({}, at::TensorOptions(at::kCPU).dtype(at::kDouble));
  for (const auto& [place, some] : sums) sum.add_(at::cat(some).to(at::kCPU).to(at::kDouble).sum());
  return sum;
}

at::Tensor shape(at::TensorList tensors) { return at::empty({}, tensors[0].options().dtype(at::kDouble)); }

}  // namespace

double sum_of_squares(const std::vector<at::Tensor>& tensors) {
  static const auto op = handle<decltype(reference)>("apus::sum_of_squares");
  if (tensors.empty()) return 0;
  const BelowAutograd guard;
  return op.call(tensors).item<double>();
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // -> f64 scalar on the CPU
  m.def("sum_of_squares(Tensor[] tensors) -> Tensor");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("sum_of_squares", apus::ops::reference); }
TORCH_LIBRARY_IMPL(apus, Meta, m) { m.impl("sum_of_squares", apus::ops::shape); }
