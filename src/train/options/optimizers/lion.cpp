// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo lion("lion", {.summary = "the sign of a momentum; takes a third to a tenth of AdamW's rate",
                                          .names = {"lion_32bit", "paged_lion_32bit"},
                                          .of_matrices = 4,
                                          .of_others = 4,
                                          .temporaries = 2});
const RegisterOptimizerInfo lion_8bit("lion_8bit", {.summary = "the same, its momentum in 8 bits",
                                                    .names = {"paged_lion_8bit"},
                                                    .of_matrices = 1 + 4.0 / 256,
                                                    .of_others = 1 + 4.0 / 256,
                                                    .temporaries = 3,
                                                    .narrow = true});
}  // namespace
}  // namespace apus
