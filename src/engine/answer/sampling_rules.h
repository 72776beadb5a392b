// SPDX-License-Identifier: Apache-2.0
// From one row of logits to the next token: pure functions, the same on every machine and in every batch. Order: bias,
// minimum length, repeated n-grams, constraint, penalties (these change logits); then temperature and the filters of
// candidates() (these choose who may be drawn), as HuggingFace's generate() does it.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/answer/text_engine.h"

namespace apus {

// How often each token stands in the answer so far; tokens of the prompt alone count 0.
class TokenCounts {
 public:
  void add_prompt(std::span<const int32_t> tokens) {
    for (const int32_t t : tokens) counts_.emplace(t, 0);
  }
  void add(int32_t token) { ++counts_[token]; }
  const std::unordered_map<int32_t, int32_t>& counts() const { return counts_; }

 private:
  std::unordered_map<int32_t, int32_t> counts_;
};

// Nothing of this request changes its logits, and the likeliest token is taken: the arg-max of the row is all it needs.
bool plain_greedy(const Sampling& s, bool constrained);
bool has_penalties(const Sampling& s);

// Tokens outside the vocabulary are passed over: prompts may hold ids that the head does not produce.
void apply_bias(std::span<float> logits, const Sampling& s);
void forbid(std::span<float> logits, std::span<const int32_t> tokens);
// 64 tokens a word; beyond its end: not allowed.
void apply_mask(std::span<float> logits, std::span<const uint64_t> allowed);
void apply_penalties(std::span<float> logits, const TokenCounts& counts, const Sampling& s);
// The tokens that would complete an n-gram which stands in `tokens` already.
std::vector<int32_t> repeats(std::span<const int32_t> tokens, int64_t n);

struct History {
  std::span<const int32_t> tokens;  // prompt and answer
  int64_t prompt = 0;               // tokens of the prompt
  const TokenCounts& counts;
};
// Whether all of the above leave this request's logits as they are.
bool changes_nothing(const Sampling& s, const History& history, bool constrained);
// All of the above.
void process(std::span<float> logits, const Sampling& s, const History& history,
             std::span<const uint64_t> allowed = {});

struct Candidate {
  int32_t token;
  float logit;         // divided by the temperature
  double probability;  // among the candidates
};
// Who may be drawn, likeliest first (ties: smaller id first). temperature must be above 0.
// Empty when every logit is -inf.
std::vector<Candidate> candidates(std::span<const float> logits, const Sampling& s);

// The next token: the first of the likeliest when greedy, else drawn with the random number of (seed, position).
// -1 when no token is possible: every logit is -inf, or one is NaN.
int32_t choose(std::span<const float> logits, const Sampling& s, int64_t position);
double draw_number(uint64_t seed, int64_t position);  // [0, 1)

// The next token of one request, with its log-probs when they are asked for: those of the logits as they come from the
// model. `logits` may be overwritten. id -1: no token is possible.
TokenOut next_token(std::span<float> logits, const Sampling& s, const History& history,
                    std::span<const uint64_t> allowed = {});

// log-softmax of one token, and of the n best (best first, ties: smaller id first).
double log_sum_exp(std::span<const float> logits);
TokenOut log_probs(std::span<const float> logits, int32_t token, int64_t top);

}  // namespace apus
