// SPDX-License-Identifier: Apache-2.0
#include "algos/vector_metrics.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace apus {
namespace {

std::vector<double> ranks_of(const std::vector<double>& values) {  // from 1; equal ones share the mean of theirs
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (size_t k = i; k < end; ++k) ranks[order[k]] = static_cast<double>(i + 1 + end) / 2;
    i = end;
  }
  return ranks;
}

std::vector<double> numbers(const at::Tensor& t) {
  const at::Tensor host = t.to(at::kCPU, at::kDouble).contiguous();
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
}

// What one query found.
struct Found {
  double right = 0, others = 0, best_other = -2, rank = 1;
  int64_t count = 0;
};

Found found_by(const float* like, int64_t from, int64_t to, int64_t right) {
  Found out{.right = like[right]};
  for (int64_t n = from; n < to; ++n) {
    if (n == right) continue;
    out.others += like[n], ++out.count;
    out.best_other = std::max<double>(out.best_other, like[n]);
    out.rank += like[n] >= like[right];
  }
  return out;
}

}  // namespace

Json retrieval_metrics(const VectorSet& set, bool own_only) {
  constexpr int64_t kChunk = 256;  // queries whose likeness to all documents exists at once
  const auto queries = static_cast<int64_t>(set.first.size());
  double right = 0, others = 0, margin = 0, first = 0, reciprocal = 0;
  int64_t compared = 0, count = 0;
  for (int64_t begin = 0; begin < queries; begin += kChunk) {
    const int64_t size = std::min(kChunk, queries - begin);
    const at::Tensor like = at::matmul(set.query_QD.narrow(0, begin, size), set.document_ND.t()).contiguous();
    for (int64_t i = 0; i < size; ++i) {
      const auto q = static_cast<size_t>(begin + i);
      const int64_t documents = like.size(1), end = q + 1 < set.first.size() ? set.first[q + 1] : documents;
      const Found found = found_by(like.data_ptr<float>() + i * documents, own_only ? set.first[q] : 0,
                                   own_only ? end : documents, set.first[q]);
      right += found.right, others += found.others, count += found.count;
      if (found.count == 0) continue;
      margin += found.right - found.best_other, first += found.rank == 1, reciprocal += 1 / found.rank, ++compared;
    }
  }
  Json out = Json::object();
  if (queries > 0) out["mean_pos"] = right / static_cast<double>(queries);
  if (count > 0) out["mean_neg"] = others / static_cast<double>(count);
  if (compared == 0) return out;
  const auto n = static_cast<double>(compared);
  out["margin"] = margin / n, out["recall@1"] = first / n, out["mrr"] = reciprocal / n;
  return out;
}

double pearson(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n,
               mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double a = x[i] - mean_x, b = y[i] - mean_y;
    xy += a * b, xx += a * a, yy += b * b;
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

double spearman(const std::vector<double>& x, const std::vector<double>& y) {
  return pearson(ranks_of(x), ranks_of(y));
}

Json pair_metrics(const at::Tensor& first_PD, const at::Tensor& second_PD, const std::vector<double>& labels) {
  Json out = Json::object();
  if (labels.size() < 2) return out;
  const at::Tensor apart_PD = first_PD - second_PD, dot_P = (first_PD * second_PD).sum(1);
  const std::pair<const char*, std::vector<double>> measures[] = {
      {"cosine", numbers(dot_P / (first_PD.norm(2, 1) * second_PD.norm(2, 1)).clamp_min(1e-12))},
      {"euclidean", numbers(-apart_PD.norm(2, 1))},
      {"manhattan", numbers(-apart_PD.abs().sum(1))},
      {"dot_product", numbers(dot_P)}};
  for (const auto& [name, values] : measures) {
    out[str("pearson_", name)] = pearson(labels, values);
    out[str("spearman_", name)] = spearman(labels, values);
  }
  return out;
}

}  // namespace apus
