// SPDX-License-Identifier: Apache-2.0
// A trained prompt: rows that an adapter adds behind an embedding's table, for words that stand before every text
// (base/prompt_words.h; PEFT's prompt tuning). It changes no weight, so it cannot be merged.
#pragma once

#include <string>
#include <vector>

#include "nn/trained_delta.h"

namespace apus {

class PromptRows final : public TrainedDelta {
 public:
  struct Spec {
    int64_t words, table, size;  // of the prompt; rows of the table; of a row
    std::vector<int32_t> text;   // tokens whose rows the prompt begins as, over and over; empty: as drawn
  };
  explicit PromptRows(Spec spec);

  at::Tensor apply(const at::Tensor& id_T, const at::Tensor& y_TD, const at::Tensor& weight, const Step& s,
                   Memo* memo = nullptr) const override;
  int64_t prompt_words() const override { return spec_.words; }
  bool looks_at_weight() const override { return false; }
  at::Tensor merged_rows(const at::Tensor& rows, int64_t first) const override;
  std::pair<at::Tensor, at::Tensor> columns(const at::Tensor& x_TI, const Step& s) const override;
  // how: "TEXT" (Spec::text), "SAMPLE_VOCAB" (rows of the table, drawn), "RANDOM" (normal numbers).
  void begin(Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options) override;
  void settle(const at::Tensor& weight, at::ScalarType type) override;

 private:
  const Spec spec_;
  Param& rows_;  // [words, size]
};

}  // namespace apus
