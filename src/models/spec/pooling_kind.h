// SPDX-License-Identifier: Apache-2.0
// How the states of a text's tokens become one vector, under the names of flags and of sentence-transformers' files.
#pragma once

#include <string>
#include <vector>

namespace apus {

// The last token's; the first one's ([CLS]); the largest number of each dimension; the mean; the sum by the root of the
// length; the mean with weights 1, 2, 3, ...
enum class Pooling { Last, First, Max, Mean, MeanSqrt, WeightedMean };

// Those of --pooling: last, cls, max, ...
std::vector<std::string> pooling_names();
Pooling pooling_named(const std::string& name);  // Fault::Usage
std::string pooling_name(Pooling pooling);

// The key of 1_Pooling/config.json: pooling_mode_lasttoken, ...
std::string pooling_key(Pooling pooling);
std::vector<Pooling> all_poolings();

}  // namespace apus
