// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo adagrad("adagrad", {.summary = "rates that fall with the squares of all gradients so far",
                                                .of_matrices = 4,
                                                .of_others = 4,
                                                .temporaries = 3});
}  // namespace
}  // namespace apus
