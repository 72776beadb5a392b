// SPDX-License-Identifier: Apache-2.0
// What the chip and the installed CANN really compute. torch_npu registers each of its operators on every chip and over
// every CANN; a call that these do not have fails when it is made.
#pragma once

#include <string>
#include <vector>

namespace apus::ascend {

// "Ascend910B3", asked without setting a device; empty where the runtime tells it only once a device is set.
std::string soc_name();

// 910B, 910_93 and 950: bf16, fused attention, mixture of experts. Not so 310P and 910A.
bool is_newer_chip(const std::string& soc_name);

// CANN's version, "8.3.RC1"; empty before 8.1.RC1, which has no function to ask for it.
std::string cann_version();

// Of versions such as "8.3.RC1" and "9.0.0": major and minor are at least these. False for an empty one.
bool version_at_least(const std::string& version, int major, int minor);

// Why an operator of torch_npu ("npu::npu_swiglu") cannot be computed here; empty when it can.
std::string lacking(const std::string& vendor_operator, const std::string& soc_name);

}  // namespace apus::ascend
