// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace apus {

// Runs the body of a command in libapus.so (src/run/<command>.cpp), which is loaded at the first call.
int run_heavy(const char* command, const void* options);

}  // namespace apus
