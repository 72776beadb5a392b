// SPDX-License-Identifier: Apache-2.0
// Proximal policy optimisation: answers are rolled out and rewarded at their end, and a critic of its own weights
// learns what to expect at each token. What turns out better than expected becomes likelier.
#pragma once

#include "algos/answers.h"
#include "algos/expert_replay.h"
#include "algos/gae.h"
#include "algos/options/ppo_options.h"
#include "algos/policy/policy_loss.h"

namespace apus {

// Half the squared distance of each value from its return; of one that moved by more than `clip` since the round began,
// the larger of that and of the value at the bound.
at::Tensor value_losses(const at::Tensor& value_N, const at::Tensor& old_N, const at::Tensor& return_N, double clip);

class Ppo final : public Algorithm {
 public:
  using Options = PpoOptions;
  explicit Ppo(PpoOptions options);
  void begin(const RunSetting& setting) override;
  std::unique_ptr<SampleSource> own_rows() override;
  std::vector<Sample> encode(const Row& row, const Encoder& encoder) const override;
  std::vector<Update> collect(Actors& actors, std::vector<Samples> micro_batches) override;
  std::optional<int64_t> batches_per_collection() const override;
  int64_t updates_per_collection() const override { return o_.updates(); }
  bool collects_by_policy() const override { return !o_.brings_rows(); }
  double count(const Batch& batch) const override { return static_cast<double>(batch.trained); }
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;
  Json state() const override { return {{"kl_coef", kl_coef_.value()}}; }
  void restore(const Json& state) override;

 private:
  // What is known of each answer of a round, by its tokens, before it is learnt from.
  struct Traces {
    std::vector<std::vector<double>> old, values, divergences;
    std::vector<std::vector<int16_t>> experts;  // of the whole sample; of a policy that meets its own choice again
    double entropy = 0;                         // summed over tokens
  };
  Traces traced(Actors& actors, const std::vector<Answer>& answers) const;
  Samples judged(const std::vector<Answer>& answers, const Traces& traces, const RankSum& over_ranks) const;
  std::vector<Update> divided(const Samples& samples, uint64_t step, bool training) const;
  void note(const AnswerRounds::Round& round, const Traces& traces, const RankSum& over_ranks);
  void note_rollout(const AnswerRounds::Round& round);
  void note_mismatch(const std::vector<Answer>& answers, const Traces& traces);
  void keep(const std::vector<Answer>& answers, Actors& actors, bool speaks) const;
  PolicyTokens tokens_of(const Batch& batch, const at::Tensor& logprob_T, const at::Tensor& index_N) const;
  at::Tensor policy_loss(Actors& actors, Batch& batch, const Forward& forward, const at::Tensor& index_N, Loss& out);
  at::Tensor critic_loss(Actors& actors, const Batch& batch, const Forward& forward, const at::Tensor& index_N,
                         Loss& out);
  double shown_reward(const Answer& answer) const;  // as it is learnt from, but for the divergence

  const PpoOptions o_;
  PolicyOptions policy_;
  KlCoefficient kl_coef_;
  ExpertReplay replay_;
  double temperature_ = 1;
  int64_t micro_batch_ = 1, questions_ = 1;  // answers
  int64_t rank_ = 0, ranks_ = 1;
  uint64_t seed_ = 42;
  c10::Device device_ = c10::Device(c10::kCPU);
  std::filesystem::path output_dir_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<AnswerRounds> rounds_;
  std::vector<Answer> replayed_;
  int64_t replayed_batches_ = 0;
  bool warms_up_ = false;               // the critic learns alone
  Batch read_by_critic_;                // of the loss at hand: its step has the critic's positions, and no experts
  std::map<std::string, Ratio> noted_;  // of a collection, until a loss carries them out
};

}  // namespace apus
