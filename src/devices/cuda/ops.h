// SPDX-License-Identifier: Apache-2.0
// Our operators that libtorch's CUDA does natively; the others run by reference.
#pragma once

#include <string>

namespace apus::cuda {

void register_ops();                             // once
std::string vendor_name(const std::string& op);  // empty: the reference

}  // namespace apus::cuda
