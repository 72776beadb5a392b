// SPDX-License-Identifier: Apache-2.0
// Group relative policy optimisation and its kin: several answers to a question are rolled out and rewarded; those that
// are better than the others become likelier. Which losses there are: algos/policy.
#pragma once

#include "algos/advantages.h"
#include "algos/answers.h"
#include "algos/chord.h"
#include "algos/expert_replay.h"
#include "algos/options/grpo_options.h"
#include "algos/policy/kl.h"
#include "algos/policy/mismatch.h"
#include "algos/policy/policy_loss.h"
#include "algos/rounds_ahead.h"
#include "algos/whole_groups.h"
#include "train/shown_rows.h"

namespace apus {

class Grpo final : public Algorithm, public LearnsShownRows {
 public:
  using Options = GrpoOptions;
  explicit Grpo(GrpoOptions options);
  void begin(const RunSetting& setting) override;
  std::unique_ptr<SampleSource> own_rows() override;
  std::vector<Sample> encode(const Row& row, const Encoder& encoder) const override;
  std::vector<Update> collect(Actors& actors, std::vector<Samples> micro_batches) override;
  std::optional<int64_t> batches_per_collection() const override;
  int64_t updates_per_collection() const override { return updates_; }
  bool collects_by_policy() const override { return !o_.brings_rows(); }
  bool looks_at_updates() const override;
  void look_at(Actors& actors, Update& batches) override;
  double count(const Batch& batch) const override;
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;
  void settle(Actors& actors) override;
  Json state() const override;
  void restore(const Json& state) override;
  Wanted shown_rows() const override;
  void show(SampleSource& rows) override;

  // The trained tokens of a batch, whose log-probs are `logprob_T`. Pure.
  PolicyTokens tokens_of(const Batch& batch, const at::Tensor& logprob_T) const;

 private:
  // A micro-batch, and which answers its sequences are of.
  struct Part {
    std::vector<size_t> answers;
    Batch batch;
  };
  std::vector<std::vector<Part>> divided(const std::vector<Answer>& answers, uint64_t step, bool training) const;
  AnswerRounds::Round round_of(Actors& actors, std::vector<Samples> micro_batches, bool training);
  bool learns_from_sampler() const;
  Sample learnt_sample(const Conversations& all, size_t conversation, bool several, bool joins) const;
  void add_logprobs(Actors& actors, Part& part) const;
  void take_divergence(const Part& part, std::vector<Answer>& answers) const;
  WholeGroups whole(const std::vector<Answer>& answers, Actors& actors, bool training) const;
  void add_advantages(std::vector<std::vector<Part>>& updates, const WholeGroups& groups,
                      const RankSum& over_ranks) const;
  void mark_tokens(Actors& actors, Update& batches, const RankSum& over_ranks) const;
  at::Tensor token_losses(const PolicyTokens& t, const at::Tensor& uncertain_N, const at::Tensor& entropy_N) const;
  void note(const AnswerRounds::Round& round, const std::vector<Answer>& answers, const ScoredAnswers& whole,
            const RankSum& over_ranks, Actors& actors, bool training);
  void keep_completions(const std::vector<Answer>& answers, Actors& actors) const;
  void warn(const std::vector<Answer>& answers, const ScoredAnswers& whole);
  void warn_of_no_opinion(const std::string& name, bool none);

  const GrpoOptions o_;
  const PolicyLossInfo& info_;
  PolicyOptions policy_;
  const Correction correction_;
  double temperature_ = 1;
  int64_t updates_ = 1, micro_batch_ = 1, questions_ = 1;  // micro_batch_: answers
  int64_t rank_ = 0, ranks_ = 1, sharers_ = 1;  // the last: neighbours that answer the same questions together
  uint64_t seed_ = 42;
  c10::Device device_ = c10::Device(c10::kCPU);
  ExpertReplay replay_;
  double rlsd_lambda_ = 0;  // of this round
  bool shares_ = false;     // what the answers of a group begin with is computed once
  std::filesystem::path output_dir_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<AnswerRounds> rounds_;
  std::unique_ptr<RoundsAhead> ahead_;  // null: a round is asked when it is its turn
  std::unique_ptr<Chord> chord_;        // null: nothing is shown
  std::vector<Answer> replayed_;
  int64_t replayed_batches_ = 0;
  std::map<std::string, Ratio> noted_;  // of a collection, until a loss carries them out
  int64_t rounds_without_spread_ = 0;
  std::map<std::string, int64_t> rounds_without_opinion_;  // of each reward
};

}  // namespace apus
