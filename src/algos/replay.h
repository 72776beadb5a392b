// SPDX-License-Identifier: Apache-2.0
// Answers in a file, one a line: {"group", "prompt_ids", "completion_ids", "reward", "logprobs"}. The last are those of
// the policy that sampled, one for each token of the completion; without them the policy as it stands counts as it. Of
// answers in several turns "loss_mask" says which tokens are the policy's (1) and which are observations (0). Rows of a
// group with the same "answer" are the conversations of one agent.
#pragma once

#include <filesystem>
#include <vector>

#include "algos/answers.h"

namespace apus {

// Answers of one group come one after the other, whatever their order in the file; groups are numbered as they first
// appear. Bad rows are all told, with their lines (Fault::Data).
// A group of fewer than `least` answers is such a fault too.
std::vector<Answer> read_rollouts(const std::filesystem::path& file, size_t least);
// `round` comes before the groups' numbers: of answers that are compared with one another it must be the same.
void append_rollouts(const std::filesystem::path& file, const std::vector<Answer>& answers, const std::string& round);

// All answers of this rank's groups, in one pass; a micro-batch is `batch` of them.
class ReplayedAnswers final : public SampleSource {
 public:
  ReplayedAnswers(const std::vector<Answer>& answers, int64_t batch, int64_t rank, int64_t ranks);
  void start(int64_t) override { at_ = 0; }
  std::optional<Samples> next() override;
  int64_t size() const override { return static_cast<int64_t>(batches_.size()); }
  Json position() const override { return at_; }
  void restore(const Json& position) override { at_ = position.get<size_t>(); }

 private:
  std::vector<Samples> batches_;
  size_t at_ = 0;
};

// Of the rank that has most of them: a pass over the file is as many on all ranks.
int64_t most_replayed_batches(const std::vector<Answer>& answers, int64_t batch, int64_t ranks);

// The answers that such micro-batches stand for; without `replayed` ones those that `rounds` asks for.
AnswerRounds::Round answers_to(std::vector<Samples> micro_batches, const std::vector<Answer>& replayed,
                               AnswerRounds* rounds, Actors& actors, bool training);

}  // namespace apus
