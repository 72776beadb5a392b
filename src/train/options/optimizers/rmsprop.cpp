// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo rmsprop("rmsprop", {.summary = "the second moment alone",
                                                .names = {"rmsprop_bnb", "rmsprop_bnb_32bit"},
                                                .of_matrices = 4,
                                                .of_others = 4,
                                                .with_momentum = 4,
                                                .temporaries = 3});
}  // namespace
}  // namespace apus
