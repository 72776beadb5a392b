// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo adafactor("adafactor",
                                      {.summary = "the second moment of a matrix as one row and one column",
                                       .of_matrices = 0,
                                       .of_others = 0,
                                       .with_momentum = 4,
                                       .temporaries = 4,
                                       .whole_matrices = true});
}  // namespace
}  // namespace apus
