// SPDX-License-Identifier: Apache-2.0
#include "algos/options/router_replay_options.h"

#include "base/error.h"

namespace apus {

void RouterReplayOptions::fields(OptionTable& v) {
  v("router_replay_mode", router_replay_mode,
    "in a mixture of experts a token meets, while it is learnt from, those experts that it met while it was drawn "
    "(R3), or that the policy chose before the updates of the round (R2)")
      .choices({"disabled", "R2", "R3"})
      .noted();
}

void RouterReplayOptions::check(bool brings_rows, bool deterministic) const {
  require(
      !replays_engine() || !(brings_rows || deterministic), Fault::Usage,
      "--router_replay_mode R3 is of answers that are drawn by an engine whose routers may choose other experts than "
      "the trainer's: leave ",
      brings_rows ? "--replay_rollouts, which has no engine," : "--deterministic_rollout, with which they do not,",
      " out");
  require(!replays_policy() || !brings_rows, Fault::Usage,
          "--router_replay_mode R2 holds routers to their choice through several updates of a round, and "
          "--replay_rollouts makes one of each pass over the file: leave one of them out");
}

void RouterReplayOptions::check_updates(int64_t updates, const std::string& flags) const {
  require(!replays_policy() || updates > 1, Fault::Usage,
          "--router_replay_mode R2 holds routers to the choice that they made before the updates of a round, and there "
          "is one update of a round: in it they choose the same. Leave it out, take R3 (the engine's choice), or make "
          "more updates of a round: ",
          flags);
}

}  // namespace apus
