// SPDX-License-Identifier: Apache-2.0
// Models whose vectors stand for texts: --task_type embedding. A row is a group of samples: the query, its document,
// documents that are not it.
#pragma once

#include "algos/options/embedding_options.h"
#include "algos/vector_losses.h"
#include "models/pooling.h"
#include "train/algorithm.h"

namespace apus {

// The vectors of some rows, [S, D], and how many samples each row has.
struct RowVectors {
  at::Tensor vector_SD;
  std::vector<int64_t> sizes;
};

class EmbeddingTraining final : public Algorithm {
 public:
  using Options = EmbeddingOptions;
  explicit EmbeddingTraining(const EmbeddingOptions& options);
  void begin(const RunSetting& setting) override { device_ = setting.device, readers_ = setting.ranks; }
  std::vector<Sample> encode(const Row& row, const Encoder& encoder) const override;
  std::vector<Update> collect(Actors& actors, std::vector<Samples> micro_batches) override;
  double count(const Batch& batch) const override;
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;
  Json evaluated(Comm& ranks) override;

 private:
  at::Tensor infonce(const at::Tensor& vector_SD, const Batch& batch, Loss& out) const;
  at::Tensor of_pairs(const at::Tensor& vector_SD, const Batch& batch) const;
  void share_vectors(Actors& actors, Update& update) const;
  RowVectors ask(Actors& actors, const Batch& batch) const;
  void keep(const at::Tensor& vector_SD, const Batch& batch);

  const EmbeddingOptions o_;
  const Pooling pooling_;
  c10::Device device_ = c10::Device(c10::kCPU);
  int64_t readers_ = 1;
  bool evaluating_ = false;
  std::vector<RowVectors> kept_;  // of an evaluation that is under way
  std::vector<float> kept_labels_;
};

}  // namespace apus
