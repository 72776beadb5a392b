// SPDX-License-Identifier: Apache-2.0
// Known questions (--eval_dataset) answered by the model as it stands in training, at every evaluation.
#pragma once

#include <filesystem>
#include <memory>

#include "cli/eval.h"
#include "device/comm.h"
#include "train/rollout.h"

namespace apus {

class BenchmarkAnswers {
 public:
  struct Parts {
    EvalOptions asked;  // not read yet
    Rollout& rollout;
    Comm& data_ranks;  // each answers its share
    std::shared_ptr<const Tokenizer> tokenizer;
    Sampling sampling;             // with the tokens that end an answer
    std::filesystem::path folder;  // the first rank's questions, answers and marks of the latest evaluation
  };
  explicit BenchmarkAnswers(Parts parts);
  Json operator()() const;  // {"eval_gsm8k": the mean, ...}

 private:
  Parts p_;
  std::vector<size_t> own_;  // which questions are this rank's
  std::vector<std::vector<int32_t>> prompts_;
};

}  // namespace apus
