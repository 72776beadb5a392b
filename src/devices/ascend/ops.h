// SPDX-License-Identifier: Apache-2.0
// Which of our operators the vendor's library computes. Kernels are registered when the device is opened, each
// only if the installed library has the operators it calls: the reference runs the others. APUS_REFERENCE_OPS (names of
// our operators with commas between, or "all") leaves some to the reference although the vendor has them.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace apus::ascend {

struct NativeOp {
  std::string op;                   // ours, without namespace
  std::vector<std::string> vendor;  // what its kernel calls, with namespace; all of it is needed
  void (*add)(torch::Library& library, const std::string& op);
};

template <auto kernel>
NativeOp native(std::string op, std::vector<std::string> vendor) {
  return {std::move(op), std::move(vendor),
          [](torch::Library& library, const std::string& name) { library.impl(name.c_str(), kernel); }};
}

std::vector<NativeOp> norm_ops();
std::vector<NativeOp> pointwise_ops();
std::vector<NativeOp> attention_ops();
std::vector<NativeOp> paged_attention_ops();
std::vector<NativeOp> moe_ops();
std::vector<NativeOp> optimizer_ops();
std::vector<NativeOp> code_ops();

void register_ops();                             // once; the vendor's library is loaded
std::string vendor_name(const std::string& op);  // the vendor's operators behind ours; empty: the reference

}  // namespace apus::ascend
