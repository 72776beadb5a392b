// SPDX-License-Identifier: Apache-2.0
#include "train/options/gradient_side.h"

#include <algorithm>

namespace apus {

const std::vector<std::string>& gradient_sides() {
  static const std::vector<std::string> all = {"std", "reverse_std", "right", "left", "full"};
  return all;
}

GradientSide gradient_side(const std::string& name, int64_t rows, int64_t columns) {
  if (name == "full") return GradientSide::Both;
  if (name == "right" || name == "left") return name == "right" ? GradientSide::Right : GradientSide::Left;
  return (name == "std") == (rows >= columns) ? GradientSide::Right : GradientSide::Left;
}

double gradient_space_bytes(int64_t rows, int64_t columns, const OptimizerArguments& arguments, double of_moments) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  const double rank = std::min({optim_number(arguments, "rank", 128), r, c});
  const auto named = arguments.find("proj_type");
  const GradientSide side = gradient_side(named == arguments.end() ? "std" : named->second, rows, columns);
  if (side == GradientSide::Both) return of_moments * rank * rank + 4 * rank * (r + c);
  const bool right = side == GradientSide::Right;
  return of_moments * rank * (right ? r : c) + 4 * rank * (right ? c : r);
}

}  // namespace apus
