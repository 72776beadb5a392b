// SPDX-License-Identifier: Apache-2.0
#include "train/options/gradient_side.h"

namespace apus {
namespace {
const RegisterOptimizerInfo apollo(
    "apollo_adamw",
    {.summary = "gradients scaled as AdamW would in a random space of few dimensions; APOLLO-Mini: --optim_args "
                "rank=1,scale=128,scale_type=tensor",
     .of_shape = [](int64_t rows, int64_t columns,
                    const OptimizerArguments& arguments) { return gradient_space_bytes(rows, columns, arguments, 8); },
     .temporaries = 4,
     .whole_matrices = true,
     .fewer_dimensions = true});
}  // namespace
}  // namespace apus
