// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo lion("lion", {.summary = "the sign of a momentum; takes a third to a tenth of AdamW's rate",
                                          .names = {"lion_32bit", "paged_lion_32bit"},
                                          .of_matrices = 4,
                                          .of_others = 4,
                                          .temporaries = 2});
}  // namespace
}  // namespace apus
