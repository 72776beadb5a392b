// SPDX-License-Identifier: Apache-2.0
// APUS_REFERENCE_OPS: names of our operators with commas between, or "all", that a device leaves to their reference
// although it has kernels of its own for them.
#pragma once

#include <string>

namespace apus {

bool left_to_reference(const std::string& op);

}  // namespace apus
