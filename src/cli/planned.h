// SPDX-License-Identifier: Apache-2.0
// A command as `apus plan` sees it: its own options, and the plan that its rehearsal (--dry_run) makes of them. A
// command can be planned when its options have
//
//   void prepare_plan(OptionTable&, int64_t devices)     fill in what the flags name, and check what goes together;
//                                                        --model may be a known shape, and there need be no rows
//   PlanSpec plan_spec(const Json& config, const DeviceFacts&, int64_t devices) const
#pragma once

#include <functional>
#include <memory>

#include "base/options.h"
#include "cli/option_groups.h"
#include "plan/plan.h"

namespace apus {

// A command that is another one and more has that one's options as inner().
template <class Options>
auto& innermost(Options& options) {
  if constexpr (requires { options.inner(); })
    return innermost(options.inner());
  else
    return options;
}

struct Planned {
  std::function<void(OptionTable&)> fields;
  std::function<void(OptionTable&, int64_t devices)> prepare;
  std::function<PlanSpec(const Json& config, const DeviceFacts& device, int64_t devices)> spec;
  std::shared_ptr<ModelOptions> model;  // of the same options

  template <class Options>
  static Planned of(const std::shared_ptr<Options>& o) {
    return {.fields = [o](OptionTable& v) { o->fields(v); },
            .prepare = [o](OptionTable& v, int64_t devices) { innermost(*o).prepare_plan(v, devices); },
            .spec = [o](const Json& config, const DeviceFacts& device,
                        int64_t devices) { return innermost(*o).plan_spec(config, device, devices); },
            .model = std::shared_ptr<ModelOptions>(o, &innermost(*o).model)};
  }
};

}  // namespace apus
