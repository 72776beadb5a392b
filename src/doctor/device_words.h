// SPDX-License-Identifier: Apache-2.0
// The kinds of devices as --device names them.
#pragma once

#include <string>
#include <vector>

namespace apus {

// In the order in which `auto` takes them.
inline std::vector<std::string> device_words() { return {"npu", "cuda", "cpu"}; }

}  // namespace apus
