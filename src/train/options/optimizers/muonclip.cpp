// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo muonclip(
    "muonclip", {.summary = "muon, whose queries and keys are made smaller where attention's logits become large",
                 .flag = "optimizer",
                 .of_matrices = 4,
                 .of_others = 4,
                 .temporaries = 4,
                 .whole_matrices = true,
                 .watches_logits = true});
}  // namespace
}  // namespace apus
