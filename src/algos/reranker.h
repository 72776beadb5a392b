// SPDX-License-Identifier: Apache-2.0
// Models that rate documents for a query: by a head of one number (--task_type reranker), or by how much likelier one
// word is than another (generative_reranker).
#pragma once

#include "algos/options/reranker_options.h"
#include "train/algorithm.h"

namespace apus {

class RankAlgorithm : public Algorithm {
 public:
  std::vector<Sample> encode(const Row& row, const Encoder& encoder) const override;
  double count(const Batch& batch) const override;
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;

 protected:
  explicit RankAlgorithm(const RerankerOptions& options) : o_(options) {}
  virtual Sample encode_pair(const Row& row, const Json& document, const char* key, const Encoder& encoder) const = 0;
  virtual at::Tensor scores(Actors& actors, Batch& batch, const at::Tensor& hidden_TD) const = 0;  // f32 [S]

 private:
  const RerankerOptions o_;
};

class Reranker final : public RankAlgorithm {
 public:
  using Options = RerankerOptions;
  explicit Reranker(const RerankerOptions& options) : RankAlgorithm(options) {}

 private:
  Sample encode_pair(const Row& row, const Json& document, const char* key, const Encoder& encoder) const override;
  at::Tensor scores(Actors& actors, Batch& batch, const at::Tensor& hidden_TD) const override;
};

class GenerativeReranker final : public RankAlgorithm {
 public:
  using Options = GenerativeRerankerOptions;
  explicit GenerativeReranker(const GenerativeRerankerOptions& options)
      : RankAlgorithm(options), words_(options.words) {}
  void begin(const RunSetting& setting) override;
  void compare(int64_t yes, int64_t no) { yes_ = yes, no_ = no; }  // tokens

 private:
  Sample encode_pair(const Row& row, const Json& document, const char* key, const Encoder& encoder) const override;
  at::Tensor scores(Actors& actors, Batch& batch, const at::Tensor& hidden_TD) const override;
  const RerankWords words_;
  int64_t yes_ = -1, no_ = -1;
};

}  // namespace apus
