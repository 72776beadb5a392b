// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"
#include "train/options/soap_sides.h"

namespace apus {
namespace {

// Two moments, and for each side its statistic and its basis; all f32.
double soap_bytes(int64_t rows, int64_t columns, const OptimizerArguments& arguments) {
  const double most = optim_number(arguments, kSoapLargest, kSoapLargestSide);
  double numbers = 2 * static_cast<double>(rows) * static_cast<double>(columns);
  for (const int64_t side : {rows, columns})
    if (const auto n = static_cast<double>(side); n <= most) numbers += 2 * n * n;
  return 4 * numbers;
}

const RegisterOptimizerInfo soap("soap", {.summary = "AdamW in the directions in which a matrix' gradients vary",
                                          .of_shape = soap_bytes,
                                          .temporaries = 5,
                                          .whole_matrices = true});
}  // namespace
}  // namespace apus
