// SPDX-License-Identifier: Apache-2.0
// What a teacher's opinion of each token does to an answer that was rewarded (algos/options/teacher_say_options.h).
// Everything is of tokens [N]; `gap`: how much likelier they are to the teacher than they were to the policy.
#pragma once

#include <ATen/core/Tensor.h>

#include "algos/options/teacher_say_options.h"

namespace apus {

// RLSD: advantages whose sizes change and whose signs do not.
at::Tensor reweighted_advantage(const at::Tensor& advantage_N, const at::Tensor& gap_N, double lambda,
                                const TeacherSayOptions& o);

// SDAR: how far a token's log-probability is below the teacher's, more of it where the teacher is surer. The gradient
// goes to the policy alone.
at::Tensor gated_distance(const at::Tensor& logprob_N, const at::Tensor& teacher_N, double gate_beta);

}  // namespace apus
