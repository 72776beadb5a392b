// SPDX-License-Identifier: Apache-2.0
// What brings rows of a tower, and tokens with rows in a table of the tower's, to the decoder (EmbedderForm).
#pragma once

#include "models/spec/embedder_form.h"
#include "models/towers/parts.h"
#include "nn/step.h"

namespace apus {

class Embedder {
 public:
  // `parts` hold its modules, and live as long.
  Embedder(const EmbedderForm& form, const TowerParts& parts);
  at::Tensor of_rows(const at::Tensor& row_MC, const Step& s) const;
  // By their numbers in the table.
  at::Tensor of_words(const at::Tensor& word_M, const Step& s) const;
  const at::Tensor& numbers_like() const { return table_.weight(); }
  // The rows of x, whose tokens these are; those of tokens in the table have its rows instead.
  at::Tensor with_own(const at::Tensor& x_TD, const at::Tensor& id_T, const Step& s) const;

 private:
  at::Tensor projected(const at::Tensor& normed_MC, const Step& s) const;
  const EmbedderForm form_;
  const Table& table_;
  const Norm &of_word_, &of_row_;
  const Linear& projection_;
};

}  // namespace apus
