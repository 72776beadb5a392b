// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo ademamix("ademamix", {.summary = "AdamW with a second, slow momentum",
                                                  .names = {"paged_ademamix_32bit"},
                                                  .of_matrices = 12,
                                                  .of_others = 12,
                                                  .temporaries = 3});
}  // namespace
}  // namespace apus
