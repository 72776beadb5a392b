// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/max.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "ops/logit_logprob.h"

namespace apus {

namespace {
constexpr int64_t kPiece = 16;  // rows on the host at once: 10 MB with a vocabulary of 150,000

at::Tensor pick_rows(const at::Tensor& all, const std::vector<int64_t>& rows) {
  if (static_cast<int64_t>(rows.size()) == all.size(0)) return all;  // they are in order
  return at::index_select(all, 0, at::tensor(rows, at::kLong).to(all.device()));
}
}  // namespace

void Sampler::operator()(const at::Tensor& logits_RV, std::vector<SampleRow>& rows) {
  std::vector<int64_t> plain, others;
  for (size_t i = 0; i < rows.size(); ++i)
    (plain_greedy(*rows[i].sampling, rows[i].constraint != nullptr) ? plain : others)
        .push_back(static_cast<int64_t>(i));
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
  add_logprobs(logits_RV, rows);
}

bool Sampler::as_trainer(const SampleRow& row) {
  const Sampling& s = *row.sampling;
  return s.tempered_logprobs && s.temperature > 0 && s.top_logprobs == 0;
}

void Sampler::add_logprobs(const at::Tensor& logits_RV, std::vector<SampleRow>& rows) {
  std::map<double, std::vector<int64_t>> by_temperature;
  for (size_t i = 0; i < rows.size(); ++i)
    if (as_trainer(rows[i]) && rows[i].out.id >= 0)
      by_temperature[rows[i].sampling->temperature].push_back(static_cast<int64_t>(i));
  for (const auto& [temperature, which] : by_temperature) {
    std::vector<int64_t> ids;
    for (const int64_t i : which) ids.push_back(rows[static_cast<size_t>(i)].out.id);
    const at::Tensor id_R = at::tensor(ids, at::kLong).to(logits_RV.device());
    const at::Tensor logprob_R =
        ops::logit_logprob(pick_rows(logits_RV, which), id_R, temperature).to(at::kCPU, at::kFloat);
    for (size_t i = 0; i < which.size(); ++i)
      rows[static_cast<size_t>(which[i])].out.logprob = logprob_R.data_ptr<float>()[i];
  }
}

void Sampler::greedy(const at::Tensor& logits_RV, const std::vector<int64_t>& which, std::vector<SampleRow>& rows) {
  auto [best, index] = at::max(pick_rows(logits_RV, which), -1);
  best = best.to(at::kCPU, at::kFloat);
  index = index.to(at::kCPU);
  for (size_t i = 0; i < which.size(); ++i) {
    const bool usable = std::isfinite(best.data_ptr<float>()[i]);
    rows[static_cast<size_t>(which[i])].out.id = usable ? static_cast<int32_t>(index.data_ptr<int64_t>()[i]) : -1;
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
    for (int64_t i = 0; i < piece; ++i) host_[i].copy_(logits_RV[rows[static_cast<size_t>(first + i)]]);
    float* data = host_.data_ptr<float>();
    at::parallel_for(0, piece, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        f(rows[static_cast<size_t>(first + i)], {data + i * vocab, static_cast<size_t>(vocab)});
    });
  }
}

}  // namespace apus
