// SPDX-License-Identifier: Apache-2.0
// What the numbers of a classifier mean.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

double sigmoid(double x);

struct LabelledText {
  Json label;                         // a number; those that hold; or the predicted number or numbers
  std::vector<double> probabilities;  // of each label; empty: regression
};
// problem_type: single_label_classification, multi_label_classification or regression.
LabelledText labelled(const std::vector<float>& logits, const std::string& problem_type);

// As ms-swift writes it: {"content": [{"index", "logprobs", "top_logprobs": [{"index", "logprob"}]}]}.
Json label_logprobs(const std::vector<float>& logits, const LabelledText& said, const std::string& problem_type,
                    int64_t top);

}  // namespace apus
