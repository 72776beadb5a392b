// SPDX-License-Identifier: Apache-2.0
// Rows of a step whose texts have media, and of their towers.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "nn/step.h"

namespace apus {

// The place of a sequence's first token of this step in its text.
int64_t begin_of(const Step& s, size_t sequence);
at::Tensor indices(const std::vector<int64_t>& values, at::Device device);
// Which adapter each row of the step goes through; empty: nothing is routed.
std::vector<std::string> adapter_of_rows(const Step& s, int64_t rows);
// The step for rows of a tower: theirs are not the text's.
Step tower_step(const Step& s, const std::string& adapter, int64_t rows, at::Device device);

}  // namespace apus
