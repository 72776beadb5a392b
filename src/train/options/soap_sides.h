// SPDX-License-Identifier: Apache-2.0
// Which sides of a matrix SOAP looks at: those of at most so many rows or columns.
#pragma once

namespace apus {

constexpr const char* kSoapLargest = "max_precondition_dim";
constexpr int kSoapLargestSide = 10000;

}  // namespace apus
