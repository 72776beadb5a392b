// SPDX-License-Identifier: Apache-2.0
#include "serve/anthropic_answer.h"

namespace apus {

namespace {

using Kind = ChatDelta::Kind;

Json usage_of(const Usage& u) {
  return {{"input_tokens", u.prompt - u.cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", u.cached},
          {"output_tokens", u.completion},
          {"output_tokens_details", {{"thinking_tokens", u.reasoning}}}};
}

Json message_json(const AnswerForm& form, const Usage& usage) {
  return {{"id", form.head.id},       {"type", "message"},      {"role", "assistant"},      {"model", form.head.model},
          {"content", Json::array()}, {"stop_reason", nullptr}, {"stop_sequence", nullptr}, {"usage", usage_of(usage)}};
}

const char* stop_reason(const AnswerPiece& piece, bool calls) {
  if (piece.finish == Finish::Length) return "max_tokens";
  if (!piece.stop.empty()) return "stop_sequence";
  return calls ? "tool_use" : "end_turn";
}

Json empty_block(const ChatDelta& d) {
  switch (d.kind) {
    case Kind::Content:
      return {{"type", "text"}, {"text", ""}};
    case Kind::Reasoning:
      return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    default:
      return {{"type", "tool_use"}, {"id", random_id("toolu_", 24)}, {"name", d.text}, {"input", Json::object()}};
  }
}

// Which pieces of text belong to one block.
bool same_block(const ChatDelta& d, Kind open) {
  if (d.kind == Kind::ToolName) return false;
  return d.kind == open || (d.kind == Kind::ToolArguments && open == Kind::ToolName);
}

class WholeMessage : public AnswerWriter {
 public:
  WholeMessage(AnswerForm form, WholeSink sink) : form_(std::move(form)), sink_(std::move(sink)) {}
  void piece(const AnswerPiece& piece, const Usage&) override {
    for (const auto& d : piece.deltas) {
      if (blocks_.empty() || !same_block(d, open_)) {
        close();
        blocks_.push_back(empty_block(d));
        open_ = d.kind;
      }
      if (d.kind != Kind::ToolName) text_ += d.text;
      calls_ |= d.kind == Kind::ToolName;
    }
    if (piece.finish == Finish::None) return;
    close();
    reason_ = stop_reason(piece, calls_);
    stop_ = piece.stop;
  }
  void end(const Usage& usage) override {
    Json out = message_json(form_, usage);
    out["content"] = blocks_;
    out["stop_reason"] = reason_;
    if (!stop_.empty()) out["stop_sequence"] = stop_;
    sink_.done(std::move(out));
  }
  void fail(const ApiError& error) override { sink_.failed(error); }

 private:
  void close() {
    if (blocks_.empty()) return;
    Json& block = blocks_.back();
    const std::string text = std::exchange(text_, {});
    if (open_ == Kind::Content)
      block["text"] = text;
    else if (open_ == Kind::Reasoning)
      block["thinking"] = text;
    else if (Json input = Json::parse(text, nullptr, /*allow_exceptions=*/false); input.is_object())
      block["input"] = std::move(input);
  }
  const AnswerForm form_;
  const WholeSink sink_;
  Json blocks_ = Json::array();
  Kind open_ = Kind::Content;
  std::string text_, stop_;
  const char* reason_ = "end_turn";
  bool calls_ = false;
};

class StreamedMessage : public AnswerWriter {
 public:
  StreamedMessage(AnswerForm form, std::shared_ptr<Responder> reply)
      : form_(std::move(form)), reply_(std::move(reply)) {}

  void begin(const Usage& usage) override {
    reply_->begin({.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}});
    say({{"type", "message_start"}, {"message", message_json(form_, usage)}});
    say({{"type", "ping"}});
  }
  void piece(const AnswerPiece& piece, const Usage&) override {
    for (const auto& d : piece.deltas) add(d);
    if (piece.finish == Finish::None) return;
    close();
    reason_ = stop_reason(piece, calls_);
    stop_ = piece.stop;
  }
  void end(const Usage& usage) override {
    say({{"type", "message_delta"},
         {"delta", {{"stop_reason", reason_}, {"stop_sequence", stop_.empty() ? Json() : Json(stop_)}}},
         {"usage", usage_of(usage)}});
    say({{"type", "message_stop"}});
    reply_->end();
  }
  void fail(const ApiError& error) override {
    say(anthropic_error(error));
    reply_->end();
  }

 private:
  void say(const Json& event) { reply_->write("event: " + event["type"].get<std::string>() + "\n" + sse_data(event)); }
  void add(const ChatDelta& d) {
    if (!is_open_ || !same_block(d, open_)) {
      close();
      say({{"type", "content_block_start"}, {"index", blocks_}, {"content_block", empty_block(d)}});
      is_open_ = true;
      open_ = d.kind;
    }
    calls_ |= d.kind == Kind::ToolName;
    if (d.kind != Kind::ToolName) say({{"type", "content_block_delta"}, {"index", blocks_}, {"delta", delta_json(d)}});
  }
  static Json delta_json(const ChatDelta& d) {
    switch (d.kind) {
      case Kind::Content:
        return {{"type", "text_delta"}, {"text", d.text}};
      case Kind::Reasoning:
        return {{"type", "thinking_delta"}, {"thinking", d.text}};
      default:
        return {{"type", "input_json_delta"}, {"partial_json", d.text}};
    }
  }
  void close() {
    if (!std::exchange(is_open_, false)) return;
    say({{"type", "content_block_stop"}, {"index", blocks_++}});
  }
  const AnswerForm form_;
  const std::shared_ptr<Responder> reply_;
  int64_t blocks_ = 0;
  bool is_open_ = false, calls_ = false;
  Kind open_ = Kind::Content;
  std::string stop_;
  const char* reason_ = "end_turn";
};

}  // namespace

std::unique_ptr<AnswerWriter> whole_message(AnswerForm form, WholeSink sink) {
  return std::make_unique<WholeMessage>(std::move(form), std::move(sink));
}
std::unique_ptr<AnswerWriter> streamed_message(AnswerForm form, std::shared_ptr<Responder> reply) {
  return std::make_unique<StreamedMessage>(std::move(form), std::move(reply));
}

}  // namespace apus
