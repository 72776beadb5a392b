// SPDX-License-Identifier: Apache-2.0
// Asking a TextEngine for whole answers: for rollouts, tests and small tools. No tensor library.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "engine/answer/text_engine.h"
#include "text/tokenizer.h"

namespace apus {

// Texts that end an answer, and stay in it.
struct StopWords {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<std::string> texts;
};

struct FinishedAnswer {
  std::vector<TokenOut> tokens, prompt;
  Finish finish = Finish::None;
  bool at_word = false;  // ended by a stop word: the last token is part of the text
  std::string error;
  int64_t cached_tokens = 0;
  std::vector<int16_t> experts;  // EngineEvent::experts of all events
  std::vector<int32_t> ids() const;
};

// How the engine names the failure of an answer whose logits are inf or nan.
inline constexpr const char* kNoNumbers = "the logits are not numbers (inf or nan)";
// What that means of weights that are trained, and what helps.
inline constexpr const char* kDiverged =
    "training has diverged, most often by a --learning_rate that is too high. Lower it, add --warmup_ratio 0.05, keep "
    "--max_grad_norm 1, or train in float32; --resume_from_checkpoint goes on from the last checkpoint";

// For training: throws when the answer has failed. Fault::Model where the model gave no numbers, else Fault::Device.
void require_ended(const FinishedAnswer& answer, const std::string& doing);

// Is told of each answer when it is whole, on the engine's thread: not for long.
using AnswerEnded = std::function<void(size_t request, const FinishedAnswer& answer)>;
// All at once; returns when the last one is done, in the order of the requests. Their sinks are this function's.
std::vector<FinishedAnswer> generate(TextEngine& engine, std::vector<EngineRequest> requests,
                                     const StopWords* stop = nullptr, const AnswerEnded& ended = {});

// Answers that are asked for while others are under way.
class AnswersUnderWay {
 public:
  explicit AnswersUnderWay(TextEngine& engine) : engine_(engine) {}
  ~AnswersUnderWay();  // cancels what has not ended
  AnswersUnderWay(const AnswersUnderWay&) = delete;
  void ask(std::vector<EngineRequest> requests, const AnswerEnded& ended);
  void wait();  // until all have ended

 private:
  struct Count {
    std::mutex mutex;
    std::condition_variable changed;
    size_t left = 0;
  };
  TextEngine& engine_;
  const std::shared_ptr<Count> count_ = std::make_shared<Count>();
  std::vector<int64_t> asked_;
};

// The i-th prompt with seed + i, so that equal prompts get different answers.
std::vector<EngineRequest> requests_of(const std::vector<std::vector<int32_t>>& prompts, const Sampling& sampling);
std::vector<FinishedAnswer> generate(TextEngine& engine, const std::vector<std::vector<int32_t>>& prompts,
                                     const Sampling& sampling);
// Takes off what stands behind the token with which a stop word is complete.
void end_at_word(FinishedAnswer& answer, const StopWords& stop);

}  // namespace apus
