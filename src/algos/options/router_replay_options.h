// SPDX-License-Identifier: Apache-2.0
// Which experts the tokens of a mixture meet while they are learnt from.
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace apus {

struct RouterReplayOptions {
  std::string router_replay_mode = "disabled";

  bool replays_engine() const { return router_replay_mode == "R3"; }  // those met while they were drawn
  bool replays_policy() const { return router_replay_mode == "R2"; }  // those of the policy before a round's updates
  // "" where routers choose anew each time.
  std::string replay_asked() const {
    return replays_engine() || replays_policy() ? "--router_replay_mode " + router_replay_mode : "";
  }
  void fields(OptionTable& v);
  void check(bool brings_rows, bool deterministic) const;
  // `updates` of a round, which `flags` make more of.
  void check_updates(int64_t updates, const std::string& flags) const;
};

}  // namespace apus
