// SPDX-License-Identifier: Apache-2.0
// apus deploy --data_parallel_size: copies of the model behind one address. Each is a server of its own, a child of
// this process; one that is lost is started again, and the others go on.
#pragma once

#include <string>
#include <vector>

#include "cli/deploy.h"

namespace apus {

// The command line of one of them: our own, but that it is one copy, at this port of this machine alone.
std::vector<std::string> copy_command(std::vector<std::string> ours, const DeployOptions& options, int copy, int port);

int deploy_copies(const DeployOptions& options);

}  // namespace apus
