// SPDX-License-Identifier: Apache-2.0
// apus deploy --infer_backend vllm | sglang: another program's server does the work, behind this one's keys, limits and
// logs.
#pragma once

#include <string>
#include <vector>

#include "cli/deploy.h"

namespace apus {

// The command line of the server that is started, listening at 127.0.0.1:port.
std::vector<std::string> upstream_command(const DeployOptions& options, const std::string& program, int port);

int deploy_upstream(const DeployOptions& options);

}  // namespace apus
