// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace apus {

// These rows of a tensor, in this order; at least one. Runs of neighbours are joined without an index, since one that
// comes from the host lets it wait for all that the device has been told to do.
at::Tensor rows_of(const at::Tensor& all, const std::vector<int64_t>& rows);

}  // namespace apus
