// SPDX-License-Identifier: Apache-2.0
// From logits on the device to tokens: where it draws itself (ops/draw_tokens.h), all rows that ask for no more than
// that, with one small copy for all. Else plain greedy rows by an arg-max there, the others on the host, in small
// pieces of reused memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/answer/sampling_rules.h"
#include "tensor/late_copy.h"

namespace apus {

struct SampleRow {
  const Sampling* sampling;
  History history;
  Constraint* constraint = nullptr;
  TokenOut out;         // the result; id -1: no token was possible
  std::string error;    // ... because the constraint gave up
  int64_t unknown = 0;  // so many tokens behind the history only the device knows
};

// Only the token, and its own log-probability, are asked for, of logits as they are. It stays so to the answer's end.
bool is_plain_draw(const SampleRow& row);

// Tokens that the device draws and keeps, and that come to the host when it asks for them.
class DrawnTokens {
 public:
  // One of each of these rows, which are plain draws.
  DrawnTokens(const at::Tensor& logits_RV, const std::vector<SampleRow>& rows, const std::vector<int64_t>& which);
  // On the device [n], of some of them; 0 where no token was possible.
  at::Tensor ids(const std::vector<int64_t>& some) const;
  std::vector<TokenOut> tell();

 private:
  at::Tensor there_;  // [R, 2] {token, log-probability}
  LateCopy host_;
};

class Sampler {
 public:
  // logits_RV: one row for each of `rows`.
  void operator()(const at::Tensor& logits_RV, std::vector<SampleRow>& rows);

  // Log-probs of given tokens, each under its row.
  std::vector<TokenOut> score(const at::Tensor& logits_RV, const std::vector<int32_t>& tokens,
                              const std::vector<int64_t>& top);

 private:
  // Calls f(row, logits) for the given rows of the device's logits, as f32 on the host, in parallel.
  void on_host(const at::Tensor& logits_RV, const std::vector<int64_t>& rows,
               const std::function<void(int64_t, std::span<float>)>& f);
  // Of rows that want those of their drawn tokens as the trainer computes them, and no others'.
  static bool as_trainer(const SampleRow& row);
  static void add_logprobs(const at::Tensor& logits_RV, const std::vector<int64_t>& which,
                           std::vector<SampleRow>& rows);
  void greedy(const at::Tensor& logits_RV, const std::vector<int64_t>& which, std::vector<SampleRow>& rows);

  at::Tensor host_;  // [rows of a piece, V] f32
};

}  // namespace apus
