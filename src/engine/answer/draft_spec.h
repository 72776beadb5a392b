// SPDX-License-Identifier: Apache-2.0
// Drafting (speculative decoding): cheap guesses at the next tokens of an answer, which the model checks together in
// one forward pass. No tensor library.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

class OptionTable;

struct DraftSpec {
  int64_t tokens = 0;  // guessed at a time; 0: none
  // Who guesses: what stood in the text before; a small model; the head that the model's checkpoint comes with, or one
  // of its own; the model without some layers.
  enum class By { Text, Model, Head, Eagle, Self } by = By::Text;
  // Guesses are what followed when the last tokens stood in the text before: at most so many of them, at least so many.
  int64_t longest = 3, shortest = 1;
  int64_t max_sequences = 8;          // while more of them generate, none is guessed for
  std::string model;                  // the folder of the small model, or of the head
  std::vector<int64_t> skipped = {};  // the layers that are left out; they rise
};

// How a command line says it.
struct DraftOptions {
  std::optional<int64_t> num_speculative_tokens, speculative_ngram, speculative_max_sequences;
  std::string draft_model;
  Json speculative_config;  // vLLM's form of all of them
  // SGLang's: by what, and how many tokens ahead.
  std::optional<std::string> sglang_speculative_algorithm;
  std::optional<int64_t> sglang_speculative_num_steps;
  void fields(OptionTable& v);
  DraftSpec spec() const;  // Fault::Usage for what cannot be
};

// Up to `count` tokens that followed the latest earlier place of the last tokens, as many of them as stand there, from
// spec.longest down to spec.shortest. What follows may reach into the guess itself: a text that repeats goes on so.
std::vector<int32_t> look_up(std::span<const int32_t> tokens, const DraftSpec& spec, int64_t count);

}  // namespace apus
