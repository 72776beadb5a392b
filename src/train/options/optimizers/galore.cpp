// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "train/options/optimizer_info.h"

namespace apus {
namespace {

// Two moments in the space, and what spans it.
double galore_bytes(int64_t rows, int64_t columns, const OptimizerArguments& arguments, double of_moments) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  const double rank = std::min({optim_number(arguments, "rank", 128), r, c});
  const auto type = arguments.find("proj_type");
  const std::string how = type == arguments.end() ? "std" : type->second;
  if (how == "full") return of_moments * rank * rank + 4 * rank * (r + c);
  const bool right = how == "right" || (how == "std" && rows >= columns) || (how == "reverse_std" && rows < columns);
  return of_moments * rank * (right ? r : c) + 4 * rank * (right ? c : r);
}

const RegisterOptimizerInfo galore(
    "galore_adamw", {.summary = "AdamW of gradients in the space of their first singular vectors",
                     .of_shape = [](int64_t rows, int64_t columns,
                                    const OptimizerArguments& a) { return galore_bytes(rows, columns, a, 8); },
                     .temporaries = 4,
                     .whole_matrices = true,
                     .fewer_dimensions = true});
const RegisterOptimizerInfo galore_8bit("galore_adamw_8bit",
                                        {.summary = "galore_adamw, moments in 8 bits",
                                         .of_matrices = 2 + 8.0 / 256,
                                         .of_others = 2 + 8.0 / 256,
                                         .of_shape =
                                             [](int64_t rows, int64_t columns, const OptimizerArguments& a) {
                                               return galore_bytes(rows, columns, a, 2 + 8.0 / 256);
                                             },
                                         .temporaries = 4,
                                         .narrow = true,
                                         .whole_matrices = true,
                                         .fewer_dimensions = true});
}  // namespace
}  // namespace apus
