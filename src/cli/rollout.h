// SPDX-License-Identifier: Apache-2.0
// The options of `apus rollout`; its body is run/rollout.cpp.
#pragma once

#include "cli/deploy.h"
#include "environment/environment_options.h"

namespace apus {

struct RolloutOptions {
  DeployOptions server;
  EnvironmentOptions environment;
  RolloutOptions() { server.engine.quant_compute = "exact"; }  // as the trainer multiplies
  void fields(OptionTable& v);
  void check() const;
  void resolve(OptionTable& v) { server.resolve(v); }
  void fetch() { server.fetch(); }
  void rehearse(Rehearsal& r) const { server.rehearse(r); }
  DeployOptions& inner() { return server; }
  int64_t ranks() const { return 1; }
};

}  // namespace apus
