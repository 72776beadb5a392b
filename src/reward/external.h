// SPDX-License-Identifier: Apache-2.0
// A program of any language as a reward: `--reward_funcs external:./reward.py`. It is started for each round of
// answers, when the first of them is there, reads one line of JSON for each answer from its input until that ends, and
// prints a line for each: a number, null, or {"reward": number}.
#pragma once

#include <memory>
#include <string>

#include "base/program.h"
#include "reward/reward.h"

namespace apus {

inline constexpr const char* kExternalReward = "external:";

inline bool is_program(const std::string& reward) { return reward.starts_with(kExternalReward); }
// "./reward.py" of "external:./reward.py".
inline std::string program_command(const std::string& reward) {
  return reward.substr(std::string_view(kExternalReward).size());
}

// Fault::Usage where the shell would not find the program, or may not run it: said before a run begins. `flag`: the
// option that names it.
void check_program(const std::string& command, const std::string& flag);

class ExternalReward final : public Reward {
 public:
  ExternalReward(std::string command, const RewardOptions& options);
  // What went wrong names the program and the line, with the end of what it said (Fault::Data); with --reward_failure
  // skip it is a warning, and no answer of the round has an opinion.
  std::vector<double> score(const std::vector<RewardInput>& answers) override;
  void hear(const std::vector<RewardInput>& answers) override;
  void forget() override { begun_ = {}; }

 private:
  struct Begun {
    std::unique_ptr<Program> program;
    size_t heard = 0;  // answers that it was told
    bool late = false;
  };
  std::vector<double> asked(const std::vector<RewardInput>& answers, Begun begun) const;
  Begun begun_;
  const std::string command_;
  const double timeout_;  // seconds
  const bool skips_;
};

}  // namespace apus
