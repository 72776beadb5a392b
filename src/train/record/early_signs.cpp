// SPDX-License-Identifier: Apache-2.0
#include "train/record/early_signs.h"

#include <cmath>
#include <optional>

#include "base/error.h"

namespace apus {
namespace {

std::optional<double> number_in(const Json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

struct Sign {
  const char* name;
  bool (*seen)(const Json& line);
  const char* advice;
};

constexpr Sign kSigns[] = {
    {"entropy", entropy_collapsed,
     "the policy's entropy has collapsed (below 0.02 nats a token): its answers are all alike, and there is nothing "
     "left to compare. A higher --temperature, --epsilon_high (0.28), --entropy_coef, or a lower --learning_rate help, "
     "from a checkpoint before"},
    {"divergence", divergence_ran_away,
     "the policy is more than 1 nat a token away from the reference: a lower --learning_rate or a higher --beta hold "
     "it; look at what it says (--log_completions true)"},
    {"limit", answers_at_limit,
     "nine of ten answers were cut at --max_completion_length: raise it; or the model does not end its turns (is the "
     "chat template that of its training?)"},
    {"pairs", chosen_like_rejected,
     "chosen and rejected answers are as likely as each other, to six digits: are they the same texts, or is the whole "
     "answer cut off (--max_length)?"},
    {"mismatch", engine_disagrees,
     "the engine that answers and the trainer differ by more than 0.1 nats a token: are the rollout servers' weights "
     "these, "
     "in the same number format? --rollout_importance_sampling_mode token_truncate corrects for it; for a mixture of "
     "experts, --router_replay_mode R3 takes the engine's experts over"},
    {"environment", never_replied_to,
     "every answer ended in its first turn, and the environment has never been heard: does the model write calls as "
     "its "
     "chat template teaches them, and is it told of the tools? A first turn that is cut is the last one, too "
     "(--max_completion_length); look at what it says (--log_completions true)"},
};

}  // namespace

bool entropy_collapsed(const Json& line) {
  const auto entropy = number_in(line, "entropy/mean"), of_ppo = number_in(line, "policy/entropy_avg");
  return (entropy && *entropy < 0.02) || (of_ppo && *of_ppo < 0.02);
}

// Algorithms that compare answers of a group tell it of a token, others of whole answers.
bool divergence_ran_away(const Json& line) {
  const auto kl = number_in(line, "kl"), of_ppo = number_in(line, "objective/kl"),
             length = number_in(line, "completions/mean_length");
  return (kl && line.contains("frac_reward_zero_std") && *kl > 1) || (of_ppo && length && *of_ppo > *length);
}

bool answers_at_limit(const Json& line) {
  const auto cut = number_in(line, "completions/clipped_ratio");
  return cut && *cut >= 0.9;
}

bool chosen_like_rejected(const Json& line) {
  const auto chosen = number_in(line, "logps/chosen"), rejected = number_in(line, "logps/rejected");
  return chosen && rejected && std::fabs(*chosen - *rejected) <= 1e-6 * std::fabs(*rejected);
}

bool engine_disagrees(const Json& line) {
  const auto mismatch = number_in(line, "rollout_mismatch/mean");
  return mismatch && *mismatch > 0.1;
}

bool never_replied_to(const Json& line) {
  const auto turns = number_in(line, "num_turns"), reward = number_in(line, "reward");
  return turns && *turns <= 1 && (!reward || *reward <= 0.5);
}

std::vector<std::string> EarlySigns::see(const Json& line) {
  std::vector<std::string> out;
  for (const Sign& sign : kSigns) {
    int& lines = in_a_row_[sign.name];
    lines = sign.seen(line) ? lines + 1 : 0;
    if (lines == kLines) out.push_back(str("in ", kLines, " lines in a row: ", sign.advice));
  }
  return out;
}

}  // namespace apus
