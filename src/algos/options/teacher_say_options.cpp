// SPDX-License-Identifier: Apache-2.0
#include "algos/options/teacher_say_options.h"

#include <algorithm>

#include "base/error.h"

namespace apus {

double TeacherSayOptions::rlsd_lambda_at(int64_t step) const {
  const auto part = [](int64_t n, int64_t of) { return static_cast<double>(n) / static_cast<double>(of); };
  if (step < rlsd_lambda_warmup_steps) return rlsd_lambda * part(step, rlsd_lambda_warmup_steps);
  if (rlsd_lambda_decay_steps == 0) return rlsd_lambda;
  return rlsd_lambda * std::max(0.0, 1 - part(step - rlsd_lambda_warmup_steps, rlsd_lambda_decay_steps));
}

void TeacherSayOptions::fields(OptionTable& v) {
  v("advantage_reweight", advantage_reweight,
    "rlsd: an answer's advantage is shared out among its tokens by how much likelier each is to the teacher")
      .choices({"rlsd"})
      .shown_default("none: what the teacher says is added")
      .noted();
  v("rlsd_lambda", rlsd_lambda, "how far: 0 not at all, 1 by the teacher alone").at_least(0).at_most(1).noted();
  v("rlsd_reweight_clip_range", rlsd_reweight_clip_range, "a token's share is at most so far from 1")
      .at_least(0)
      .noted();
  v("rlsd_lambda_warmup_steps", rlsd_lambda_warmup_steps, "updates in which rlsd_lambda rises from 0")
      .at_least(0)
      .noted();
  v("rlsd_lambda_decay_steps", rlsd_lambda_decay_steps, "updates behind these in which it falls to 0; 0: it stays")
      .at_least(0)
      .noted();
  v("rlsd_negative_only", rlsd_negative_only, "share out only advantages below 0").noted();
  v("sdar_loss_coef", sdar_loss_coef,
    "weight of a loss that pulls tokens towards the teacher, more where it is surer of them (SDAR); 0: none")
      .at_least(0)
      .noted();
  v("sdar_gate_beta", sdar_gate_beta, "how sharply that follows the teacher's lead").above(0).noted();
}

void TeacherSayOptions::check(bool taught, bool rewarded) const {
  const std::string flag = reweights() ? "--advantage_reweight rlsd" : gates() ? "--sdar_loss_coef" : "";
  if (flag.empty()) return;
  require(!reweights() || !gates(), Fault::Usage,
          "--advantage_reweight rlsd and --sdar_loss_coef are two ways to learn from a teacher: give one of them");
  require(taught, Fault::Usage, flag, " needs a teacher: --teacher_model DIR");
  require(rewarded, Fault::Usage, flag,
          " needs rewards beside the teacher's opinion, for it changes what they teach: --reward_funcs, --reward_model "
          "or --environment");
}

}  // namespace apus
