// SPDX-License-Identifier: Apache-2.0
// Small things that all ranks must know alike. `ranks` carries tensors on the host.
#pragma once

#include <string>
#include <vector>

#include "device/comm.h"

namespace apus {

double sum_over(Comm& ranks, double value);
double largest_of(Comm& ranks, double value);
std::vector<std::string> gather_text(const std::string& mine, Comm& ranks);  // every rank's, by rank

}  // namespace apus
