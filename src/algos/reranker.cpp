// SPDX-License-Identifier: Apache-2.0
#include "algos/reranker.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include "algos/label_losses.h"
#include "algos/pairs.h"
#include "algos/rank_losses.h"
#include "data/rows/documents.h"
#include "models/pooling.h"

namespace apus {
namespace {

constexpr const char* kAnswers = "label";  // 1: the document answers the query, 0: it does not

std::vector<float> on_host(const at::Tensor& t) {
  const at::Tensor host = t.detach().to(at::kCPU, at::kFloat).contiguous();
  return {host.data_ptr<float>(), host.data_ptr<float>() + host.numel()};
}

std::vector<int64_t> lists_of(const Batch& batch) { return list_begins(on_host(batch.sequence_columns.at(kAnswers))); }

void add_rank_metrics(Loss& out, const std::vector<float>& scores, const std::vector<int64_t>& begins) {
  double reciprocal = 0, ndcg = 0, lists = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    const auto from = scores.begin() + begins[i],
               to = i + 1 < begins.size() ? scores.begin() + begins[i + 1] : scores.end();
    if (to - from < 2) continue;
    const RankQuality quality = rank_quality({from, to});
    reciprocal += quality.reciprocal_rank, ndcg += quality.ndcg, ++lists;
  }
  out.metrics["mrr"] = {at::tensor(reciprocal, at::kDouble), at::tensor(lists, at::kDouble)};
  out.metrics["ndcg"] = {at::tensor(ndcg, at::kDouble), at::tensor(lists, at::kDouble)};
}

}  // namespace

std::vector<Sample> RankAlgorithm::encode(const Row& row, const Encoder& encoder) const {
  const std::vector<Json> good = chosen_of(documents_of(row, "positive"), o_.most_positives, false, row);
  const std::vector<Json> bad = chosen_of(documents_of(row, "negative"), o_.most_negatives, false, row);
  if (good.empty())
    throw RowError(row.origin, "positive_messages",
                   "the row has no document that answers the query: [[{\"role\": \"assistant\", \"content\": ...}]]");
  if (bad.empty() && o_.listwise())
    throw RowError(row.origin, "negative_messages", "a list needs a document that does not answer the query");
  std::vector<Sample> out, others;
  for (const Json& document : bad) others.push_back(encode_pair(row, document, "negative_messages", encoder));
  for (Sample& sample : others) sample.columns[kAnswers] = 0, sample.grouped = true;
  for (const Json& document : good) {
    Sample sample = encode_pair(row, document, "positive_messages", encoder);
    sample.columns[kAnswers] = 1, sample.grouped = !out.empty();
    out.push_back(std::move(sample));
    out.insert(out.end(), others.begin(), others.end());
  }
  return out;
}

double RankAlgorithm::count(const Batch& batch) const {
  const auto documents = static_cast<int64_t>(batch.step.length_q.size());
  if (!o_.listwise()) return static_cast<double>(documents);
  const std::vector<int64_t> begins = lists_of(batch);
  int64_t lists = 0;
  for (size_t i = 0; i < begins.size(); ++i)
    lists += (i + 1 < begins.size() ? begins[i + 1] : documents) - begins[i] >= o_.least_list;
  return static_cast<double>(lists);
}

Loss RankAlgorithm::loss(Actors& actors, Batch& batch, const Forward& forward) {
  const at::Tensor score_S = scores(actors, batch, forward.hidden(actors.policy, batch));
  const at::Tensor& wanted_S = batch.sequence_columns.at(kAnswers);
  const std::vector<int64_t> begins = lists_of(batch);
  Loss out{.sum = (o_.listwise() ? listwise_losses(score_S, begins, o_.temperature, o_.least_list)
                                 : binary_losses(score_S, wanted_S))
                      .sum(),
           .metrics = {}};
  out.metrics["acc"] = mean_of(score_S.detach().gt(0).eq(wanted_S.gt(0.5)).to(at::kFloat));
  if (!at::GradMode::is_enabled()) add_rank_metrics(out, on_host(score_S), begins);
  return out;
}

Sample Reranker::encode_pair(const Row& row, const Json& document, const char* key, const Encoder& encoder) const {
  return encoder.encode_text(row, query_and_document(query_of(row), document), nullptr, key);
}

at::Tensor Reranker::scores(Actors& actors, Batch& batch, const at::Tensor& hidden_TD) const {
  return text_scores(actors.policy, batch.id_T, hidden_TD, batch.step).squeeze(1);
}

void GenerativeReranker::begin(const RunSetting& setting) {
  if (setting.tokenizer)
    compare(token_of_word(*setting.tokenizer, words_.yes), token_of_word(*setting.tokenizer, words_.no));
}

Sample GenerativeReranker::encode_pair(const Row& row, const Json& document, const char* key,
                                       const Encoder& encoder) const {
  const Json query = query_of(row);
  const std::string own = system_of(document);
  Json messages = rerank_messages(text_without_system(query), text_without_system(document),
                                  own.empty() ? system_of(query) : own, words_);
  return encoder.encode_text(row, with_media_of(std::move(messages), query, document), no_thoughts(), key);
}

at::Tensor GenerativeReranker::scores(Actors& actors, Batch& batch, const at::Tensor& hidden_TD) const {
  require(yes_ >= 0, Fault::Bug, "a generative reranker was not told its tokens");
  return token_lead(actors.policy, last_states(hidden_TD, batch.step), batch.step, yes_, no_);
}

namespace {
const RegisterAlgorithm<Reranker> reranker("reranker");
const RegisterAlgorithm<GenerativeReranker> generative("generative_reranker");
}  // namespace

}  // namespace apus
