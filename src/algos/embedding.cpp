// SPDX-License-Identifier: Apache-2.0
#include "algos/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <cstring>

#include "algos/pairs.h"
#include "algos/row_sharers.h"
#include "algos/vector_metrics.h"
#include "data/rows/documents.h"
#include "device/agree.h"
#include "train/idle_pass.h"

namespace apus {
namespace {

constexpr const char* kAlike = "label";
// In Batch::own: the vectors of the other ranks' rows, and how many samples each of those has.
constexpr const char *kOthers = "other_vectors", *kOtherSizes = "other_sizes";

std::vector<int64_t> sizes_of(const Batch& batch) {
  std::vector<int64_t> sizes;
  for (const int64_t group : batch.groups) {
    sizes.resize(static_cast<size_t>(group) + 1);
    ++sizes[static_cast<size_t>(group)];
  }
  return sizes;
}

std::vector<int64_t> integers(const at::Tensor& t) {
  const at::Tensor host = t.to(at::kCPU, at::kLong).contiguous();
  return {host.data_ptr<int64_t>(), host.data_ptr<int64_t>() + host.numel()};
}

at::Tensor rows_of(const at::Tensor& x_SD, const std::vector<int64_t>& rows) {
  return x_SD.index_select(0, at::tensor(rows, at::kLong).to(x_SD.device()));
}

// The first sample of each row is its query, the others are documents.
VectorSet set_of(const RowVectors& rows) {
  std::vector<int64_t> queries, documents, first;
  int64_t begin = 0;
  for (const int64_t size : rows.sizes) {
    first.push_back(std::ssize(documents));
    queries.push_back(begin);
    for (int64_t i = begin + 1; i < begin + size; ++i) documents.push_back(i);
    begin += size;
  }
  return {rows_of(rows.vector_SD, queries), rows_of(rows.vector_SD, documents), std::move(first)};
}

RowVectors joined(const std::vector<RowVectors>& parts) {
  RowVectors out;
  std::vector<at::Tensor> vectors;
  for (const RowVectors& part : parts) {
    if (part.sizes.empty()) continue;
    vectors.push_back(part.vector_SD);
    out.sizes.insert(out.sizes.end(), part.sizes.begin(), part.sizes.end());
  }
  if (!vectors.empty()) out.vector_SD = at::cat(vectors);
  return out;
}

// As bytes: rows, width, sizes, vectors.
std::string bytes_of(const RowVectors& rows) {
  const std::vector<int64_t> head = {std::ssize(rows.sizes), rows.sizes.empty() ? 0 : rows.vector_SD.size(1)};
  std::string out;
  const auto put = [&](const void* data, size_t size) { out.append(static_cast<const char*>(data), size); };
  put(head.data(), head.size() * sizeof(int64_t));
  if (rows.sizes.empty()) return out;
  put(rows.sizes.data(), rows.sizes.size() * sizeof(int64_t));
  const at::Tensor host = rows.vector_SD.detach().to(at::kCPU, at::kFloat).contiguous();
  put(host.data_ptr<float>(), static_cast<size_t>(host.numel()) * sizeof(float));
  return out;
}

RowVectors rows_from(const std::string& bytes) {
  RowVectors out;
  int64_t head[2] = {};
  std::memcpy(head, bytes.data(), sizeof(head));
  if (head[0] == 0) return out;
  out.sizes.resize(static_cast<size_t>(head[0]));
  const size_t size = out.sizes.size() * sizeof(int64_t), begin = sizeof(head) + size;
  std::memcpy(out.sizes.data(), bytes.data() + sizeof(head), size);
  const size_t floats = (bytes.size() - begin) / sizeof(float);
  out.vector_SD = at::empty({static_cast<int64_t>(floats) / head[1], head[1]}, at::kFloat);
  std::memcpy(out.vector_SD.data_ptr<float>(), bytes.data() + begin, floats * sizeof(float));
  return out;
}

// Pairs of a query with each document of its row; all labels but that of the first document are 0.
struct Pairs {
  std::vector<int64_t> query, document;
  at::Tensor label_P;
};

Pairs pairs_of(const Batch& batch, const at::Device& device) {
  Pairs out;
  std::vector<float> labels;
  const at::Tensor given = batch.sequence_columns.at(kAlike).to(at::kCPU).contiguous();
  int64_t begin = 0;
  for (const int64_t size : sizes_of(batch)) {
    for (int64_t i = begin + 1; i < begin + size; ++i) {
      out.query.push_back(begin), out.document.push_back(i);
      labels.push_back(i == begin + 1 ? given.data_ptr<float>()[begin] : 0);
    }
    begin += size;
  }
  out.label_P = at::tensor(labels, at::kFloat).to(device);
  return out;
}

}  // namespace

EmbeddingTraining::EmbeddingTraining(const EmbeddingOptions& options)
    : o_(options), pooling_(pooling_named(options.pooling.value_or("last"))) {}

std::vector<Sample> EmbeddingTraining::encode(const Row& row, const Encoder& encoder) const {
  const std::vector<Json> right = documents_of(row, "positive");
  if (right.size() != 1)
    throw RowError(row.origin, "positive_messages",
                   str("one text that belongs to `messages` is wanted, the row has ", right.size()));
  std::vector<Json> wrong = documents_of(row, "negative");
  if (o_.hard_negatives && !o_.of_pairs()) {
    if (wrong.empty())
      throw RowError(row.origin, "negative_messages",
                     str("--infonce_hard_negatives ", *o_.hard_negatives, ", but the row has none"));
    wrong = chosen_of(std::move(wrong), *o_.hard_negatives, true, row);
  }
  if (wrong.empty() && !o_.infonce.use_batch && !o_.of_pairs())
    throw RowError(row.origin, "negative_messages",
                   "with --infonce_use_batch false a row needs texts that do not belong to `messages`");
  std::vector<Sample> out = {encoder.encode_text(row, query_of(row))};
  float label = 1;
  if (const auto found = row.value.find(kAlike); found != row.value.end() && !found->is_null()) {
    if (!found->is_number() && !found->is_boolean())
      throw RowError(row.origin, kAlike, "must be a number: how alike the two texts are");
    label = found->is_boolean() ? found->get<bool>() : found->get<float>();
  }
  if (o_.loss_type.ends_with("contrastive") && label != 0 && label != 1)
    throw RowError(row.origin, kAlike, str("is ", label, "; --loss_type ", o_.loss_type, " knows 1 (alike) and 0"));
  out[0].columns[kAlike] = label;
  out.push_back(encoder.encode_text(row, right[0], nullptr, "positive_messages"));
  for (const Json& text : wrong) out.push_back(encoder.encode_text(row, text, nullptr, "negative_messages"));
  for (size_t i = 1; i < out.size(); ++i) out[i].grouped = true;
  return out;
}

// Those of the model as it stands, nothing dropped.
RowVectors EmbeddingTraining::ask(Actors& actors, const Batch& batch) const {
  at::NoGradGuard no_grad;
  const Batch here = batch.to(device_);
  Step step = here.step;
  step.position = at::Tensor();  // the model's own
  return {text_vectors(actors.policy.forward(here.inputs(), step), step, pooling_).to(at::kCPU), sizes_of(batch)};
}

// Every rank's micro-batches see those of the others with the same number.
void EmbeddingTraining::share_vectors(Actors& actors, Update& update) const {
  Comm& ranks = *actors.data_ranks;
  const auto most = static_cast<size_t>(largest_of(ranks, static_cast<double>(update.size())));
  for (size_t i = 0; i < most; ++i) {
    RowVectors mine;
    if (i < update.size())
      mine = ask(actors, update[i]);
    else if (passes_in_step(actors.policy))
      ask(actors, idle_batch());  // before the exchange, as the others' passes are
    const std::vector<std::string> all = gather_from_readers(bytes_of(mine), ranks, readers_);
    const auto me = static_cast<size_t>(ranks.rank() * readers_ / ranks.size());
    std::vector<RowVectors> others;
    for (size_t r = 0; r < all.size(); ++r)
      if (r != me) others.push_back(rows_from(all[r]));
    const RowVectors rest = joined(others);
    if (i >= update.size() || rest.sizes.empty()) continue;
    update[i].own[kOthers] = rest.vector_SD;
    update[i].own[kOtherSizes] = at::tensor(rest.sizes, at::kLong);
  }
}

std::vector<Update> EmbeddingTraining::collect(Actors& actors, std::vector<Samples> micro_batches) {
  std::vector<Update> updates = Algorithm::collect(actors, std::move(micro_batches));
  if (!at::GradMode::is_enabled() && !std::exchange(evaluating_, true)) kept_.clear(), kept_labels_.clear();
  const bool shared = !o_.of_pairs() && o_.infonce.use_batch && at::GradMode::is_enabled();
  if (shared && actors.data_ranks && actors.data_ranks->size() > 1) share_vectors(actors, updates[0]);
  return updates;
}

double EmbeddingTraining::count(const Batch& batch) const {
  if (o_.loss_type == "infonce") return static_cast<double>(sizes_of(batch).size());
  // The sum over the chosen pairs of a micro-batch is no mean.
  if (o_.loss_type == "online_contrastive") return 1;
  return static_cast<double>(batch.step.length_q.size() - sizes_of(batch).size());  // pairs
}

// The sum over the queries of this rank. It has the gradient of that over all ranks' queries, for which the documents
// of this rank are candidates too: summed over ranks that is the gradient of one process with all rows.
at::Tensor EmbeddingTraining::infonce(const at::Tensor& vector_SD, const Batch& batch, Loss& out) const {
  std::vector<RowVectors> all = {{vector_SD, sizes_of(batch)}};
  const int64_t mine = std::ssize(all[0].sizes);
  if (const auto others = batch.own.find(kOthers); others != batch.own.end())
    all.push_back({others->second.to(vector_SD.device()), integers(batch.own.at(kOtherSizes))});
  const InfonceLosses losses = infonce_losses(set_of(joined(all)), o_.infonce);
  out.metrics["acc"] = mean_of(losses.found_Q.narrow(0, 0, mine));
  const at::Tensor sum = losses.loss_Q.narrow(0, 0, mine).sum();
  const int64_t theirs = losses.loss_Q.size(0) - mine;
  if (theirs == 0) return sum;
  const at::Tensor rest = losses.loss_Q.narrow(0, mine, theirs).sum();
  return sum + (rest - rest.detach());
}

at::Tensor EmbeddingTraining::of_pairs(const at::Tensor& vector_SD, const Batch& batch) const {
  const Pairs pairs = pairs_of(batch, vector_SD.device());
  const at::Tensor cosine_P = (rows_of(vector_SD, pairs.query) * rows_of(vector_SD, pairs.document)).sum(1);
  if (o_.loss_type == "cosine_similarity") return cosine_losses(cosine_P, pairs.label_P).sum();
  if (o_.loss_type == "contrastive") return contrastive_losses(cosine_P, pairs.label_P).sum();
  return online_contrastive_losses(cosine_P, pairs.label_P).sum();
}

Loss EmbeddingTraining::loss(Actors& actors, Batch& batch, const Forward& forward) {
  const at::Tensor vector_SD = text_vectors(forward.hidden(actors.policy, batch), batch.step, pooling_);
  if (!at::GradMode::is_enabled()) keep(vector_SD, batch);
  Loss out;
  out.sum = o_.of_pairs() ? of_pairs(vector_SD, batch) : infonce(vector_SD, batch, out);
  return out;
}

void EmbeddingTraining::keep(const at::Tensor& vector_SD, const Batch& batch) {
  if (o_.of_pairs()) {
    const Pairs pairs = pairs_of(batch, at::Device(at::kCPU));
    const at::Tensor host_SD = vector_SD.to(at::kCPU);
    for (size_t i = 0; i < pairs.query.size(); ++i)
      kept_.push_back({rows_of(host_SD, {pairs.query[i], pairs.document[i]}), {2}});
    const float* label = pairs.label_P.data_ptr<float>();
    kept_labels_.insert(kept_labels_.end(), label, label + pairs.label_P.numel());
  } else {
    kept_.push_back({vector_SD.to(at::kCPU), sizes_of(batch)});
  }
}

Json EmbeddingTraining::evaluated(Comm& ranks) {
  std::vector<RowVectors> parts;
  for (const std::string& bytes : gather_from_readers(bytes_of(joined(kept_)), ranks, readers_))
    parts.push_back(rows_from(bytes));
  std::vector<double> labels;
  for (const std::string& bytes :
       gather_from_readers({reinterpret_cast<const char*>(kept_labels_.data()), kept_labels_.size() * sizeof(float)},
                           ranks, readers_)) {
    std::vector<float> theirs(bytes.size() / sizeof(float));
    std::memcpy(theirs.data(), bytes.data(), bytes.size());
    labels.insert(labels.end(), theirs.begin(), theirs.end());
  }
  kept_.clear(), kept_labels_.clear(), evaluating_ = false;
  const RowVectors all = joined(parts);
  if (all.sizes.empty()) return Json::object();
  const VectorSet set = set_of(all);
  return o_.of_pairs() ? pair_metrics(set.query_QD, set.document_ND, labels)
                       : retrieval_metrics(set, !o_.infonce.use_batch);
}

namespace {
const RegisterAlgorithm<EmbeddingTraining> embedding("embedding");
}  // namespace

}  // namespace apus
