// SPDX-License-Identifier: Apache-2.0
// Losses of models that give a text labels or numbers, as transformers' ...ForSequenceClassification has them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace apus {

// One label of several, any number of labels, numbers.
enum class Problem { Single, Multi, Regression };
Problem problem_named(const std::string& problem_type);  // single_label_classification, ...

// The loss of each text, [S]. wanted: Single: int64 [S], the label; Multi: [S, N], 1 where a label holds; Regression:
// [S, N], the numbers. Multi and Regression take the mean over N.
at::Tensor label_losses(const at::Tensor& logit_SN, const at::Tensor& wanted, Problem problem);

// The cross-entropy of a yes or no with this logit, element by element.
at::Tensor binary_losses(const at::Tensor& logit, const at::Tensor& wanted);

// Which texts are labelled right, f32 [S]: all labels of a text must be.
at::Tensor labelled_right(const at::Tensor& logit_SN, const at::Tensor& wanted, Problem problem);

}  // namespace apus
