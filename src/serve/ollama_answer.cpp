// SPDX-License-Identifier: Apache-2.0
#include "serve/ollama_answer.h"

#include <ctime>

#include "base/clock.h"

namespace apus {

namespace {

using Kind = ChatDelta::Kind;

int64_t duration_ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

// Either form: what pieces have in common.
class OllamaAnswer : public AnswerWriter {
 public:
  OllamaAnswer(AnswerForm form, bool chat) : form_(std::move(form)), chat_(chat) {}

 protected:
  struct Words {
    std::string content, thinking;
    Json calls = Json::array();
    bool empty() const { return content.empty() && thinking.empty() && calls.empty(); }
  };

  // A call is told when its arguments are complete.
  void take(const AnswerPiece& piece, Words& words) {
    if (first_ < 0) first_ = watch_.seconds();
    for (const ChatDelta& d : piece.deltas) {
      if (d.kind == Kind::Content)
        words.content += d.text;
      else if (d.kind == Kind::Reasoning)
        words.thinking += d.text;
      else if (d.kind == Kind::ToolName)
        finish_call(words), name_ = d.text, calling_ = true;
      else
        arguments_ += d.text;
    }
    if (piece.finish == Finish::None) return;
    finish_call(words);
    reason_ = piece.finish == Finish::Length ? "length" : "stop";
  }

  Json line(const Words& words) const {
    Json out = {{"model", form_.head.model}, {"created_at", ollama_time(std::time(nullptr))}};
    Json& text = chat_ ? out["message"] : out;
    if (chat_) text["role"] = "assistant";
    text[chat_ ? "content" : "response"] = words.content;
    if (!words.thinking.empty()) text["thinking"] = words.thinking;
    if (!words.calls.empty()) text["tool_calls"] = words.calls;
    out["done"] = false;
    return out;
  }

  Json last(const Words& words, const Usage& usage) const {
    const double all = watch_.seconds(), prompt = first_ < 0 ? all : first_;
    Json out = line(words);
    out.update({{"done", true},
                {"done_reason", reason_},
                {"total_duration", duration_ns(all)},
                {"load_duration", 0},
                {"prompt_eval_count", usage.prompt},
                {"prompt_eval_duration", duration_ns(prompt)},
                {"eval_count", usage.completion},
                {"eval_duration", duration_ns(all - prompt)}});
    return out;
  }

 private:
  void finish_call(Words& words) {
    if (!std::exchange(calling_, false)) return;
    Json arguments = Json::parse(std::exchange(arguments_, {}), nullptr, /*allow_exceptions=*/false);
    if (!arguments.is_object()) arguments = Json::object();
    words.calls.push_back({{"function", {{"name", name_}, {"arguments", std::move(arguments)}}}});
  }

  const AnswerForm form_;
  const bool chat_;
  const Stopwatch watch_{};
  double first_ = -1;  // seconds until the first piece; -1: none has come
  std::string name_, arguments_;
  bool calling_ = false;
  const char* reason_ = "stop";
};

class WholeOllama : public OllamaAnswer {
 public:
  WholeOllama(AnswerForm form, bool chat, WholeSink sink)
      : OllamaAnswer(std::move(form), chat), sink_(std::move(sink)) {}
  void piece(const AnswerPiece& piece, const Usage&) override { take(piece, words_); }
  void end(const Usage& usage) override { sink_.done(last(words_, usage)); }
  void fail(const ApiError& error) override { sink_.failed(error); }

 private:
  const WholeSink sink_;
  Words words_;
};

class StreamedOllama : public OllamaAnswer {
 public:
  StreamedOllama(AnswerForm form, bool chat, std::shared_ptr<Responder> reply)
      : OllamaAnswer(std::move(form), chat), reply_(std::move(reply)) {}
  void begin(const Usage&) override { reply_->begin({.content_type = "application/x-ndjson"}); }
  void piece(const AnswerPiece& piece, const Usage&) override {
    Words words;
    take(piece, words);
    if (!words.empty()) say(line(words));
  }
  void end(const Usage& usage) override {
    say(last({}, usage));
    reply_->end();
  }
  void fail(const ApiError& error) override {
    say(ollama_error(error));
    reply_->end();
  }

 private:
  void say(const Json& object) { reply_->write(json_text(object) + "\n"); }
  const std::shared_ptr<Responder> reply_;
};

}  // namespace

std::unique_ptr<AnswerWriter> whole_ollama_chat(AnswerForm form, WholeSink sink) {
  return std::make_unique<WholeOllama>(std::move(form), true, std::move(sink));
}
std::unique_ptr<AnswerWriter> streamed_ollama_chat(AnswerForm form, std::shared_ptr<Responder> reply) {
  return std::make_unique<StreamedOllama>(std::move(form), true, std::move(reply));
}
std::unique_ptr<AnswerWriter> whole_ollama_text(AnswerForm form, WholeSink sink) {
  return std::make_unique<WholeOllama>(std::move(form), false, std::move(sink));
}
std::unique_ptr<AnswerWriter> streamed_ollama_text(AnswerForm form, std::shared_ptr<Responder> reply) {
  return std::make_unique<StreamedOllama>(std::move(form), false, std::move(reply));
}

Json ollama_entry(const std::string& name, int64_t modified, int64_t bytes) {
  return {{"name", name + ":latest"},
          {"model", name + ":latest"},
          {"modified_at", ollama_time(modified)},
          {"size", bytes},
          {"digest", ""},
          {"details",
           {{"parent_model", ""},
            {"format", "safetensors"},
            {"family", ""},
            {"families", Json::array()},
            {"parameter_size", ""},
            {"quantization_level", ""}}}};
}

std::string ollama_time(int64_t seconds) {
  const std::time_t when = seconds;
  std::tm utc{};
  gmtime_r(&when, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

}  // namespace apus
