// SPDX-License-Identifier: Apache-2.0
// The options of `apus rollout`; its body is run/rollout.cpp.
#pragma once

#include "cli/deploy.h"
#include "environment/environment_options.h"
#include "plan/plan.h"

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
  std::filesystem::path ranks_dir() const { return server.ranks_dir(); }
  void prepare_plan(OptionTable& v, int64_t devices) { server.prepare_plan(v, devices); }
  PlanSpec plan_spec(const Json& config, const DeviceFacts& device, int64_t devices) const {
    return server.plan_spec(config, device, devices);
  }
};

}  // namespace apus
