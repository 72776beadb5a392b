// SPDX-License-Identifier: Apache-2.0
// The only file that asks for libtorch's version: 1.13 (Debian 12) and 2.x are bridged here.
#pragma once

#include <torch/version.h>

namespace apus {

inline const char* torch_version() { return TORCH_VERSION; }

}  // namespace apus
