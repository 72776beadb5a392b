// SPDX-License-Identifier: Apache-2.0
#include "train/options/gradient_side.h"

namespace apus {
namespace {

const RegisterOptimizerInfo galore(
    "galore_adamw", {.summary = "AdamW of gradients in the space of their first singular vectors",
                     .of_shape = [](int64_t rows, int64_t columns,
                                    const OptimizerArguments& a) { return gradient_space_bytes(rows, columns, a, 8); },
                     .temporaries = 4,
                     .whole_matrices = true,
                     .fewer_dimensions = true});
const RegisterOptimizerInfo galore_8bit("galore_adamw_8bit",
                                        {.summary = "galore_adamw, moments in 8 bits",
                                         .of_matrices = 2 + 8.0 / 256,
                                         .of_others = 2 + 8.0 / 256,
                                         .of_shape =
                                             [](int64_t rows, int64_t columns, const OptimizerArguments& a) {
                                               return gradient_space_bytes(rows, columns, a, 2 + 8.0 / 256);
                                             },
                                         .temporaries = 4,
                                         .narrow = true,
                                         .whole_matrices = true,
                                         .fewer_dimensions = true});
}  // namespace
}  // namespace apus
