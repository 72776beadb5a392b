// SPDX-License-Identifier: Apache-2.0
// Evaluation by generation (--predict_with_generate): the model as it stands in training answers the validation rows.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "data/source/sample_source.h"
#include "device/comm.h"
#include "engine/answer/text_engine.h"
#include "text/tokenizer.h"
#include "train/rollout.h"

namespace apus {

class Prediction {
 public:
  struct Parts {
    Rollout& rollout;
    SampleSource& rows;
    Comm& ranks;    // figures are of the rows of all ranks
    Comm* sharers;  // that have the same rows, of which each answers its share; null: this one has all
    std::shared_ptr<const Tokenizer> tokenizer;
    Sampling sampling;  // with the tokens that end an answer
    // The answers of the latest evaluation, JSON lines; empty: none.
    std::filesystem::path file;
  };
  explicit Prediction(Parts parts) : p_(std::move(parts)) {}

  // {"eval_rouge-1", "eval_rouge-2", "eval_rouge-l", "eval_bleu-4": means times 100,
  //  "eval_acc": share of equal answers}
  Json operator()() const;

 private:
  struct Question {
    std::vector<int32_t> prompt, reference;
    std::vector<MediaItem> media;  // of the prompt
  };
  std::vector<Question> questions() const;
  Parts p_;
};

// The last stretch of learnt tokens of a sequence is its answer; what stands before it is the prompt. Both are empty
// when nothing stands before the answer.
std::pair<std::vector<int32_t>, std::vector<int32_t>> last_answer(const Sample& sample);

}  // namespace apus
