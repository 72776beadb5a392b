// SPDX-License-Identifier: Apache-2.0
// What of `apus deploy` others use: tests, without sockets, and `apus rollout`.
#pragma once

#include "cli/deploy.h"
#include "run/inference.h"
#include "serve/service.h"

namespace apus {

ServiceSpec service_spec(const DeployOptions& options, const Inference& inference);
int serve_model(const DeployOptions& options, ServiceSpec service);  // until a signal comes

}  // namespace apus
