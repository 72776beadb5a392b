// SPDX-License-Identifier: Apache-2.0
// Which of our operators the vendor's library does natively. Kernels are registered when the device is opened, each only if
// the installed library has the operators it calls: the reference runs the others.
#pragma once

#include <string>

namespace apus::ascend {

void register_ops();                             // once
std::string vendor_name(const std::string& op);  // the vendor's operator behind ours; empty: the reference

}  // namespace apus::ascend
