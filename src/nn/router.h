// SPDX-License-Identifier: Apache-2.0
// Which experts each token meets, and by how much each counts.
#pragma once

#include "nn/router_form.h"
#include "ops/ops.h"

namespace apus {

// correction_E (f32, may be undefined) is added to what the choice is made by, not to the weights.
ops::Routing route(const at::Tensor& logits_TE, const RouterForm& form, int64_t per_token,
                   const at::Tensor& correction_E);

// To experts that somebody else chose.
ops::Routing route_to(const at::Tensor& expert_Tk, const at::Tensor& logits_TE, const RouterForm& form);

// The same where somebody told it, and the router's own choice where experts are below 0.
ops::Routing route_as_told(const ops::Routing& own, const at::Tensor& told_Tk, const at::Tensor& logits_TE,
                           const RouterForm& form);

// Without what is sent to experts beyond their capacity: such a choice counts nothing.
ops::Routing within_capacity(ops::Routing routing, int64_t experts, const ExpertCapacity& capacity);

}  // namespace apus
