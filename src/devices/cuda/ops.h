// SPDX-License-Identifier: Apache-2.0
// Which of our operators this device computes by kernels of its own or of libtorch; the reference runs the others. They
// are registered when the device is opened. APUS_REFERENCE_OPS (names of our operators with commas between, or "all")
// leaves some to the reference.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace apus::cuda {

struct OwnOp {
  std::string op;  // ours, without namespace
  std::string by;  // what computes it, for people
  void (*add)(torch::Library& library, const std::string& op);
};

template <auto kernel>
OwnOp own(std::string op, std::string by) {
  return {std::move(op), std::move(by),
          [](torch::Library& library, const std::string& name) { library.impl(name.c_str(), kernel); }};
}

constexpr const char* kOwnKernel = "kernel of ours";

std::vector<OwnOp> attention_ops();  // none where libtorch's flash attention has another form
// These need kernels of ours (kernel.h).
std::vector<OwnOp> norm_ops();
std::vector<OwnOp> pointwise_ops();
std::vector<OwnOp> paged_attention_ops();
std::vector<OwnOp> linear_ops();
std::vector<OwnOp> moe_ops();
std::vector<OwnOp> code_ops();
std::vector<OwnOp> optimizer_ops();
std::vector<OwnOp> draw_ops();

void register_ops();                             // once
std::string vendor_name(const std::string& op);  // empty: the reference

}  // namespace apus::cuda
