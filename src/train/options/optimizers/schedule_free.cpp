// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo free_adamw("schedule_free_adamw",
                                       {.summary = "AdamW that saves an average over the run; with --lr_scheduler_type "
                                                   "constant or constant_with_warmup",
                                        .temporaries = 2,
                                        .averages = true});
const RegisterOptimizerInfo free_radam("schedule_free_radam", {.summary = "schedule_free_adamw that needs no warm-up",
                                                               .temporaries = 2,
                                                               .averages = true});
const RegisterOptimizerInfo free_sgd("schedule_free_sgd", {.summary = "SGD that saves an average over the run",
                                                           .of_matrices = 4,
                                                           .of_others = 4,
                                                           .temporaries = 1,
                                                           .averages = true});
}  // namespace
}  // namespace apus
