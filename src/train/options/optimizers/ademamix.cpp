// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo ademamix("ademamix", {.summary = "AdamW with a second, slow momentum",
                                                  .names = {"paged_ademamix_32bit"},
                                                  .of_matrices = 12,
                                                  .of_others = 12,
                                                  .temporaries = 3});
const RegisterOptimizerInfo ademamix_8bit("ademamix_8bit", {.summary = "the same, moments in 8 bits",
                                                            .names = {"paged_ademamix_8bit"},
                                                            .of_matrices = 3 + 12.0 / 256,
                                                            .of_others = 3 + 12.0 / 256,
                                                            .temporaries = 4,
                                                            .narrow = true});
}  // namespace
}  // namespace apus
