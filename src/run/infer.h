// SPDX-License-Identifier: Apache-2.0
// The parts of `apus infer`: rows that are answered, rows that get numbers, and a chat.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/infer.h"
#include "engine/answer/answer_text.h"
#include "run/inference.h"
#include "text/channel_text.h"

namespace apus {

// Copies of the model share out the rows.
int infer_rows(const InferOptions& options, Inference& inference, const std::string& result_path, AnswerRanks& ranks);
int infer_numbers(const InferOptions& options, const std::string& result_path);  // of a model that gives no words
int infer_speech(const InferOptions& options, const std::string& result_path);   // of one that only speaks
int infer_chat(const InferOptions& options, Inference& inference, const std::string& result_path);

Sampling infer_sampling(const InferOptions& options, const Inference& inference);

// The text of one answer while it is made; what a model says in channels as one text with <think>.
class InferAnswer {
 public:
  // `tools`: what the model was told it can call; null: nothing.
  InferAnswer(const InferOptions& options, const Inference& inference, const Json& tools);
  std::string push(const EngineEvent& event);  // new text
  const std::string& text() const { return channels_ ? text_ : answer_.text(); }
  Finish finish() const { return answer_.finish(); }
  const std::vector<TokenOut>& tokens() const { return answer_.tokens(); }
  const std::string& error() const { return answer_.error(); }

 private:
  std::unique_ptr<ChannelText> channels_;  // null: the text is as it was said
  AnswerText answer_;
  std::string text_;
};

}  // namespace apus
