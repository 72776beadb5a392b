// SPDX-License-Identifier: Apache-2.0
// TCP ports of this machine.
#pragma once

#include <optional>

namespace apus {

// One of 127.0.0.1 that is free at this moment; nothing, with errno set, when there is none.
std::optional<int> free_port();

}  // namespace apus
