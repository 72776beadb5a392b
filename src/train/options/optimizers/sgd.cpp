// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo sgd(
    "sgd", {.summary = "no moments", .of_matrices = 0, .of_others = 0, .with_momentum = 4, .temporaries = 1});
}  // namespace
}  // namespace apus
