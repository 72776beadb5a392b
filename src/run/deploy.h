// SPDX-License-Identifier: Apache-2.0
// What of `apus deploy` its tests use without sockets.
#pragma once

#include "cli/deploy.h"
#include "run/inference.h"
#include "serve/service.h"

namespace apus {

ServiceSpec service_spec(const DeployOptions& options, const Inference& inference);

}  // namespace apus
