// SPDX-License-Identifier: Apache-2.0
// Rows in runs, each run times a matrix of a stack that is held quantised. A device that keeps the stack in an order of
// its own multiplies all runs together (coded_grouped_linear); by the reference the stack is made plain for that.
// Others multiply run by run, by the weights that the stack consists of.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <vector>

#include "ops/expert_pairs.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "ops/quantised.h"

namespace apus::ops {
namespace {

at::Tensor coded_reference(const at::Tensor& x, const at::Tensor& codes, const at::Tensor& ends, int64_t rows) {
  static const auto plain_codes = handle<at::Tensor(const at::Tensor&, int64_t, int64_t)>("apus::plain_codes");
  const int64_t experts = ends.size(0);
  const at::Tensor all = plain_codes.call(codes, 0, experts * rows).view({experts, rows, x.size(1)});
  return grouped_linear(x, all, ends);
}

// Rows of y of a run.
int64_t rows_of_entry(const at::Tensor& stack) { return stack.numel() / stack.size(0) / stack.size(-1); }

at::Tensor forward(const at::Tensor& x, const at::Tensor& stack, const at::Tensor& ends) {
  static const auto op = handle<decltype(coded_reference)>("apus::coded_grouped_linear");
  return op.call(x, *codes_of(stack), ends, rows_of_entry(stack));
}

// Wrapped, as no gradient could belong to it.
struct Frozen {
  at::Tensor stack;
};

// Of a device's own codes.
struct CodedRuns : torch::autograd::Function<CodedRuns> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& ends,
                            const Frozen& frozen) {
    const BelowAutograd guard;
    ctx->saved_data["stack"] = frozen.stack;
    ctx->save_for_backward({ends});
    return ops::forward(x, frozen.stack, ends);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    const BelowAutograd guard;
    const at::Tensor stack = ctx->saved_data["stack"].toTensor(), ends = ctx->get_saved_variables()[0];
    const at::Tensor all = plain(stack).view({stack.size(0), -1, stack.size(-1)});
    return {std::get<0>(grouped_linear_backward(grad[0], {}, all, ends, {true, false})), {}, {}};
  }
};

// Where nobody has rows the first matrix multiplies none: the backward passes of all ranks exchange what is theirs.
at::Tensor run_by_run(const at::Tensor& x, const at::Tensor& stack, const at::Tensor& ends) {
  const at::Tensor host = ends.to(at::kCPU).contiguous();
  const int64_t* const end = host.data_ptr<int64_t>();
  const int64_t each = rows_of_entry(stack) / stack.size(-2);
  std::vector<at::Tensor> runs;
  for (int64_t e = 0, begin = 0; e < stack.size(0); begin = end[e++]) {
    const int64_t count = end[e] - begin;
    if (count == 0 && (x.size(0) > 0 || e > 0)) continue;
    const at::Tensor rows = x.narrow(0, begin, count);
    std::vector<at::Tensor> side_by_side;
    for (int64_t i = 0; i < each; ++i) side_by_side.push_back(linear(rows, matrix_in(stack, e * each + i), {}));
    runs.push_back(each == 1 ? side_by_side[0] : at::cat(side_by_side, 1));
  }
  return runs.size() == 1 ? runs[0] : at::cat(runs, 0);
}

}  // namespace

at::Tensor quantised_grouped_linear(const at::Tensor& x_MI, const at::Tensor& stack, const at::Tensor& ends_E) {
  if (!codes_of(stack)) return run_by_run(x_MI, stack, ends_E);
  if (any_requires_grad(x_MI)) return CodedRuns::apply(x_MI, ends_E, Frozen{stack});
  const BelowAutograd guard;
  return forward(x_MI, stack, ends_E);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // x [M, I] in runs, as of grouped_linear; codes of E matrices [rows, I], one below the other.
  m.def("coded_grouped_linear(Tensor x, Tensor codes, Tensor ends, int rows) -> Tensor");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("coded_grouped_linear", apus::ops::coded_reference); }
