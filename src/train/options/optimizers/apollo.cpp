// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "train/options/optimizer_info.h"

namespace apus {
namespace {
const RegisterOptimizerInfo apollo(
    "apollo_adamw",
    {.summary = "gradients scaled as AdamW would in a random space of few dimensions; APOLLO-Mini: --optim_args "
                "rank=1,scale=128,scale_type=tensor",
     .of_shape =
         [](int64_t rows, int64_t columns, const OptimizerArguments& arguments) {
           const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
           const double rank = std::min({optim_number(arguments, "rank", 128), r, c});
           return 8 * rank * std::max(r, c) + 4 * rank * std::min(r, c);
         },
     .temporaries = 4,
     .whole_matrices = true,
     .fewer_dimensions = true});
}  // namespace
}  // namespace apus
