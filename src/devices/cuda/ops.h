// SPDX-License-Identifier: Apache-2.0
// Our operators that libtorch's own CUDA kernels compute; the others run by the reference.
#pragma once

#include <string>

namespace apus::cuda {

void register_ops();                             // once
std::string vendor_name(const std::string& op);  // empty: the reference

}  // namespace apus::cuda
