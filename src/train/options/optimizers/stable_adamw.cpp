// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo stable_adamw("stable_adamw", {.summary = "AdamW that slows down where a gradient is new",
                                                          .temporaries = 3,
                                                          .whole_matrices = true});
}  // namespace
}  // namespace apus
