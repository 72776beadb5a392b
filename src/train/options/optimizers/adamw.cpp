// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo adamw("adamw",
                                  {.summary = "two moments of each weight",
                                   .names = {"adamw_torch", "adamw_torch_fused", "adamw_torch_npu_fused",
                                             "adamw_torch_xla", "adamw_hf", "paged_adamw", "paged_adamw_32bit"},
                                   .temporaries = 0,
                                   .fused = true});
// Moments of 1 byte, and two f32 scales for each 256 of them.
const RegisterOptimizerInfo adamw_8bit("adamw_8bit",
                                       {.summary = "the same, moments in 8 bits",
                                        .names = {"adamw_bnb_8bit", "adamw_torch_8bit", "paged_adamw_8bit"},
                                        .of_matrices = 2 + 8.0 / 256,
                                        .of_others = 2 + 8.0 / 256,
                                        .temporaries = 0,
                                        .fused = true,
                                        .narrow = true});
// Half a byte each, and two f32 scales for each 128 of them.
const RegisterOptimizerInfo adamw_4bit("adamw_4bit", {.summary = "the same, moments in 4 bits",
                                                      .names = {"adamw_torch_4bit"},
                                                      .of_matrices = 1 + 8.0 / 128,
                                                      .of_others = 1 + 8.0 / 128,
                                                      .temporaries = 0,
                                                      .fused = true,
                                                      .narrow = true});
}  // namespace
}  // namespace apus
