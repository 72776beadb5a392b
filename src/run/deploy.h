// SPDX-License-Identifier: Apache-2.0
// What of `apus deploy` others use: tests, without sockets, and `apus rollout`.
#pragma once

#include <functional>

#include "cli/deploy.h"
#include "run/inference.h"
#include "serve/service.h"

namespace apus {

ServiceSpec service_spec(const DeployOptions& options, const Inference& inference);
// Until a signal comes; `watch` is called now and then, and what it throws ends the server.
int serve_model(const DeployOptions& options, ServiceSpec service, const std::function<void()>& watch = {});

}  // namespace apus
