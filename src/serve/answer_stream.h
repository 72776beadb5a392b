// SPDX-License-Identifier: Apache-2.0
// The answers to one request while they are made: engine events become pieces of text, reasoning and tool calls, and a
// writer brings them into the form of an API.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/answer/answer_text.h"
#include "serve/api_error.h"
#include "serve/workers.h"
#include "text/tool_calls.h"

namespace apus {

struct Usage {
  int64_t prompt = 0, completion = 0, cached = 0;
  int64_t reasoning = 0;              // of the completion: its thoughts, with the marks around them
  int64_t drafted = 0, accepted = 0;  // tokens that were guessed, and those of the completion among them
};

// What an event adds to one answer.
struct AnswerPiece {
  size_t index = 0;  // which answer
  std::vector<ChatDelta> deltas;
  std::vector<TokenOut> tokens;  // those of the text; a stop token is left out
  Finish finish = Finish::None;
  std::string stop;  // the stop string that ended it, if one did
};

// Brings pieces into an API's form. Called by one thread at a time.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual void begin(const Usage&) {}  // all requests are accepted; the prompt's length is known
  virtual void prompt(size_t index, std::vector<TokenOut> tokens) {}  // with prompt_logprobs
  virtual void piece(const AnswerPiece& piece, const Usage& usage) = 0;
  virtual void end(const Usage& usage) = 0;
  virtual void fail(const ApiError& error) = 0;  // instead of end(); parts of the answers may have been sent
};

// Numbers for the log line of a request: the answer stream writes them, they are read when the reply has ended.
struct AnswerNotes {
  std::string model, finish;
  Usage usage;
  double first_token = -1;  // seconds since it came; -1: none came
};

class AnswerMeter {  // thread-safe
 public:
  virtual ~AnswerMeter() = default;
  virtual void first_token(double seconds) = 0;
  virtual void next_token(double seconds) = 0;
  virtual void finished(const Usage& usage) = 0;
};

struct AnswerStreamSpec {
  TextEngine* engine = nullptr;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<EngineRequest> requests;  // one per answer; their sinks are set here
  size_t per_prompt = 1;                // answers to the same prompt, which follow each other
  AnswerText::Spec answer;
  std::optional<ChatParserOptions> parser;  // none: all text is content
  std::shared_ptr<const Json> tools;        // what parser->tools points to
  int most_calls = INT32_MAX;               // an answer ends after so many tool calls
  std::string prefix;                       // text that every answer begins with
  int64_t prompt_tokens = 0;                // for the usage: each prompt counted once
};

class AnswerStream : public std::enable_shared_from_this<AnswerStream> {
 public:
  AnswerStream(AnswerStreamSpec spec, std::unique_ptr<AnswerWriter> writer, std::shared_ptr<Serial> serial,
               std::shared_ptr<AnswerNotes> notes, AnswerMeter* meter);

  // To be called on `serial`. Throws when the engine refuses; nothing has been written then.
  void start();
  // The client has left: the engine stops working for it. Any thread.
  void cancel();
  void stop(const std::string& why);  // the server ends: the client is told (503). Any thread

 private:
  using Clock = std::chrono::steady_clock;
  struct Choice {
    explicit Choice(const AnswerStreamSpec& spec);
    AnswerText answer;
    std::optional<ChatParser> parser;
    size_t told = 0;  // tokens that the writer has been given
    int64_t request = 0;
    bool over = false;
    Clock::time_point last;
  };
  void on_event(size_t index, const EngineEvent& event);
  void measure(Choice& choice, const EngineEvent& event);
  void count(Choice& choice, AnswerPiece& piece, bool thought);
  std::vector<ChatDelta> parse(Choice& choice, const std::string& text, bool last);
  void leave(const char* finish);  // cancels what still runs; nothing is written any more
  void fail(const ApiError& error);

  AnswerStreamSpec spec_;
  const std::unique_ptr<AnswerWriter> writer_;
  const std::shared_ptr<Serial> serial_;
  const std::shared_ptr<AnswerNotes> notes_;
  AnswerMeter* const meter_;
  const Clock::time_point begin_ = Clock::now();
  std::vector<Choice> choices_;
  size_t finished_ = 0;
  bool started_ = false, over_ = false;
  Usage usage_;
};

}  // namespace apus
