// SPDX-License-Identifier: Apache-2.0
#include "devices/ascend/ops.h"

namespace apus::ascend {

void register_ops() {}
std::string vendor_name(const std::string&) { return ""; }

}  // namespace apus::ascend
