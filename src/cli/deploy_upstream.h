// SPDX-License-Identifier: Apache-2.0
// apus deploy --infer_backend vllm | sglang: another program's server does the work, behind the keys, limits and logs
// of this one.
#pragma once

#include <string>
#include <vector>

#include "cli/deploy.h"

namespace apus {

// The command line of the server that is started, listening at 127.0.0.1:port.
std::vector<std::string> upstream_command(const DeployOptions& options, const std::string& program, int port);

// Says of flags that were given and that nobody reads there; before anything else sets them.
void note_idle_flags(const DeployOptions& options, OptionTable& v);

int deploy_upstream(const DeployOptions& options);

}  // namespace apus
