// SPDX-License-Identifier: Apache-2.0
// The text of an answer while it is made: whole characters only, stop strings found across tokens, and nothing shown
// that may yet turn out to be the beginning of one. No tensor library.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/answer/text_engine.h"
#include "text/tokenizer.h"

namespace apus {

// Finds the first of some strings in a text that comes in pieces. Pure text, so it has its own tests.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops, bool keep = false) : stops_(std::move(stops)), keep_(keep) {}

  // What can be shown now: everything up to a stop string (with it when `keep`), less an end that may begin one.
  std::string push(const std::string& text);
  std::string flush();  // the end of the text: nothing is held back any more
  bool found() const { return found_; }
  const std::string& which() const { return which_; }  // the one that was found

 private:
  std::vector<std::string> stops_;
  bool keep_, found_ = false;
  std::string held_, which_;
};

class AnswerText {
 public:
  struct Spec {
    std::vector<int32_t> stop_ids;  // not part of the text
    std::vector<std::string> stops;
    bool keep_stop = false;  // a stop string stays in the text
    bool skip_special = true;
    int64_t min_tokens = 0;  // before so many, no stop string ends the answer
  };
  AnswerText(std::shared_ptr<const Tokenizer> tokenizer, Spec spec)
      : tokenizer_(std::move(tokenizer)),
        decoder_(tokenizer_, spec.skip_special),
        stops_(spec.stops, spec.keep_stop),
        spec_(std::move(spec)) {}

  // New text. When it ends by a stop string, finish() is Stop and the caller cancels the request.
  std::string push(const EngineEvent& event);
  Finish finish() const { return finish_; }
  const std::string& text() const { return text_; }                // all of it so far
  const std::vector<TokenOut>& tokens() const { return tokens_; }  // the stop token included
  const std::string& error() const { return error_; }
  const std::string& stop() const { return stops_.which(); }  // the stop string that ended it, if one did

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  StreamDecoder decoder_;
  StopStrings stops_;
  Spec spec_;
  std::string text_, error_;
  std::vector<TokenOut> tokens_;
  Finish finish_ = Finish::None;
};

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}, as OpenAI's API has it.
Json logprobs_json(const Tokenizer& tokenizer, const std::vector<TokenOut>& tokens, int64_t top);

const char* finish_name(Finish finish);  // "stop", "length", ... as OpenAI's finish_reason

}  // namespace apus
