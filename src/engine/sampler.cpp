// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "engine/rows.h"
#include "ops/draw_tokens.h"
#include "ops/logit_logprob.h"

namespace apus {

namespace {
constexpr int64_t kPiece = 16;  // rows on the host at once: 10 MB with a vocabulary of 150,000

ops::DrawRule rule_of(const SampleRow& row, int64_t at) {
  const Sampling& s = *row.sampling;
  return {.row = static_cast<double>(at),
          .temperature = s.temperature,
          .top_k = static_cast<double>(s.top_k),
          .top_p = s.top_p,
          .min_p = s.min_p,
          .epsilon_cutoff = s.epsilon_cutoff,
          .number = draw_number(s.seed, std::ssize(row.history.tokens) + row.unknown),
          .logprob = s.top_logprobs < 0                         ? 0.0
                     : s.tempered_logprobs && s.temperature > 0 ? 2.0
                                                                : 1.0};
}

at::Tensor draw_there(const at::Tensor& logits_RV, const std::vector<int64_t>& which,
                      const std::vector<SampleRow>& rows) {
  std::vector<ops::DrawRule> rules;
  for (const int64_t i : which) rules.push_back(rule_of(rows[static_cast<size_t>(i)], i));
  return ops::draw_tokens(logits_RV, rules);
}

}  // namespace

bool is_plain_draw(const SampleRow& row) {
  return row.sampling->top_logprobs <= 0 && changes_nothing(*row.sampling, row.history, row.constraint != nullptr);
}

DrawnTokens::DrawnTokens(const at::Tensor& logits_RV, const std::vector<SampleRow>& rows,
                         const std::vector<int64_t>& which)
    : there_(draw_there(logits_RV, which, rows)), host_(there_) {}

at::Tensor DrawnTokens::ids(const std::vector<int64_t>& some) const {
  return rows_of(there_.select(1, 0), some).clamp_min(0).to(at::kLong);
}

std::vector<TokenOut> DrawnTokens::tell() {
  const at::Tensor host = host_.wait().contiguous();
  std::vector<TokenOut> out(static_cast<size_t>(host.size(0)));
  const float* at = host.data_ptr<float>();
  for (TokenOut& token : out) token.id = static_cast<int32_t>(*at++), token.logprob = *at++;
  return out;
}

void Sampler::operator()(const at::Tensor& logits_RV, std::vector<SampleRow>& rows) {
  std::vector<int64_t> there, plain, others;
  const bool draws = ops::draws_tokens(logits_RV.device());
  for (size_t i = 0; i < rows.size(); ++i)
    (draws && is_plain_draw(rows[i])                                  ? there
     : plain_greedy(*rows[i].sampling, rows[i].constraint != nullptr) ? plain
                                                                      : others)
        .push_back(static_cast<int64_t>(i));
  std::optional<DrawnTokens> drawn;
  if (!there.empty()) drawn.emplace(logits_RV, rows, there);
  if (!plain.empty()) greedy(logits_RV, plain, rows);
  on_host(logits_RV, others, [&](int64_t i, std::span<float> logits) {
    SampleRow& row = rows[static_cast<size_t>(i)];
    std::vector<uint64_t> allowed;
    try {
      if (row.constraint) row.constraint->allowed(allowed);
    } catch (const std::exception& e) {  // its request ends, the others of the step go on
      row.error = e.what();
      return;
    }
    if (!as_trainer(row)) {
      row.out = next_token(logits, *row.sampling, row.history, allowed);
      return;
    }
    Sampling alone = *row.sampling;
    alone.top_logprobs = -1;
    row.out = next_token(logits, alone, row.history, allowed);
  });
  add_logprobs(logits_RV, others, rows);
  if (!drawn) return;
  std::vector<TokenOut> tokens = drawn->tell();
  for (size_t i = 0; i < there.size(); ++i) rows[static_cast<size_t>(there[i])].out = std::move(tokens[i]);
}

bool Sampler::as_trainer(const SampleRow& row) {
  const Sampling& s = *row.sampling;
  return s.tempered_logprobs && s.temperature > 0 && s.top_logprobs == 0;
}

void Sampler::add_logprobs(const at::Tensor& logits_RV, const std::vector<int64_t>& which,
                           std::vector<SampleRow>& rows) {
  std::map<double, std::vector<int64_t>> by_temperature;
  for (const int64_t i : which)
    if (const SampleRow& row = rows[static_cast<size_t>(i)]; as_trainer(row) && row.out.id >= 0)
      by_temperature[row.sampling->temperature].push_back(i);
  for (const auto& [temperature, alike] : by_temperature) {
    std::vector<int64_t> ids;
    for (const int64_t i : alike) ids.push_back(rows[static_cast<size_t>(i)].out.id);
    const at::Tensor id_R = at::tensor(ids, at::kLong).to(logits_RV.device());
    const at::Tensor logprob_R =
        ops::logit_logprob(rows_of(logits_RV, alike), id_R, temperature).to(at::kCPU, at::kFloat);
    for (size_t i = 0; i < alike.size(); ++i)
      rows[static_cast<size_t>(alike[i])].out.logprob = logprob_R.data_ptr<float>()[i];
  }
}

void Sampler::greedy(const at::Tensor& logits_RV, const std::vector<int64_t>& which, std::vector<SampleRow>& rows) {
  const auto [best, index] = at::max(rows_of(logits_RV, which), -1);
  // In f64 no token's number is rounded, which not every device has.
  const at::ScalarType type = logits_RV.is_cpu() ? at::kDouble : at::kFloat;
  const at::Tensor both = at::stack({best.to(type), index.to(type)}, 1).to(at::kCPU, at::kDouble);
  for (size_t i = 0; i < which.size(); ++i) {
    const double* const row = both.data_ptr<double>() + 2 * i;
    rows[static_cast<size_t>(which[i])].out.id = std::isfinite(row[0]) ? static_cast<int32_t>(row[1]) : -1;
  }
}

std::vector<TokenOut> Sampler::score(const at::Tensor& logits_RV, const std::vector<int32_t>& tokens,
                                     const std::vector<int64_t>& top) {
  std::vector<TokenOut> out(tokens.size());
  std::vector<int64_t> all(tokens.size());
  std::iota(all.begin(), all.end(), 0);
  on_host(logits_RV, all, [&](int64_t i, std::span<float> logits) {
    const auto at = static_cast<size_t>(i);
    out[at] = log_probs(logits, tokens[at], top[at]);
  });
  return out;
}

void Sampler::on_host(const at::Tensor& logits_RV, const std::vector<int64_t>& rows,
                      const std::function<void(int64_t, std::span<float>)>& f) {
  const int64_t vocab = logits_RV.size(1), count = static_cast<int64_t>(rows.size());
  if (!host_.defined() || host_.size(1) != vocab) host_ = at::empty({kPiece, vocab}, at::kFloat);
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t piece = std::min(kPiece, count - first);
    if (logits_RV.is_cpu()) {
      for (int64_t i = 0; i < piece; ++i) host_[i].copy_(logits_RV[rows[static_cast<size_t>(first + i)]]);
    } else {
      const std::vector<int64_t> some(rows.begin() + first, rows.begin() + first + piece);
      host_.narrow(0, 0, piece).copy_(rows_of(logits_RV, some));
    }
    float* data = host_.data_ptr<float>();
    at::parallel_for(0, piece, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        f(rows[static_cast<size_t>(first + i)], {data + i * vocab, static_cast<size_t>(vocab)});
    });
  }
}

}  // namespace apus
