// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo muon("muon", {.summary = "matrices by their momentum made orthogonal, the rest by AdamW",
                                          .flag = "optimizer",
                                          .of_matrices = 4,
                                          .temporaries = 4,
                                          .whole_matrices = true});
}  // namespace
}  // namespace apus
