// SPDX-License-Identifier: Apache-2.0
// Tokens drawn where their logits are.
#include <ATen/ops/empty.h>

#include "devices/cuda/ops.h"
#include "devices/cuda/typed.h"
#include "ops/op.h"
#include "tensor/upload.h"

namespace apus::cuda {

namespace {

at::Tensor draw_tokens(const at::Tensor& logits_in, const at::Tensor& rule) {
  static const Kernel kernel("draw_tokens", "draw");
  constexpr int64_t kThreads = 1024;
  const at::Tensor wide = logits_in.to(at::kFloat), logits = wide.stride(1) == 1 ? wide : wide.contiguous();
  const at::Tensor rules = uploaded(rule, logits.device());
  const at::Tensor out = at::empty({rule.size(0), 2}, logits.options());
  if (rule.size(0) > 0)
    kernel(Extent{rule.size(0)}, Extent{kThreads}, address(logits), static_cast<long long>(logits.stride(0)),
           static_cast<int>(logits.size(1)), address(rules), address(out));
  return out;
}

}  // namespace

std::vector<OwnOp> draw_ops() { return {own<draw_tokens>("draw_tokens", kOwnKernel)}; }

}  // namespace apus::cuda
