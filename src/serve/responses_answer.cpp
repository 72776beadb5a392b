// SPDX-License-Identifier: Apache-2.0
#include "serve/responses_answer.h"

namespace apus {

namespace {

using Kind = ChatDelta::Kind;

Json response_usage(const Usage& u) {
  return {{"input_tokens", u.prompt},
          {"input_tokens_details", {{"cached_tokens", u.cached}}},
          {"output_tokens", u.completion},
          {"output_tokens_details", {{"reasoning_tokens", u.reasoning}}},
          {"total_tokens", u.prompt + u.completion}};
}

// Builds the items of a response from the pieces of an answer, and tells each step as an event.
class ResponseWriter : public AnswerWriter {
 public:
  explicit ResponseWriter(ResponseForm form) : form_(std::move(form)) {}

  void begin(const Usage&) override {
    say("response.created", {{"response", response("in_progress")}});
    say("response.in_progress", {{"response", response("in_progress")}});
  }
  void piece(const AnswerPiece& piece, const Usage&) override {
    // Log-probs of words only: a call's or a thought's have no place in a response.
    const bool words = !piece.deltas.empty() && piece.deltas.back().kind == Kind::Content;
    for (const auto& d : piece.deltas) {
      if (!is_open_ || !continues(d)) open(d);
      if (d.kind != Kind::ToolName) add(d, words && &d == &piece.deltas.back() ? logprobs_of(piece) : Json::array());
    }
    if (piece.finish == Finish::None) return;
    cut_ = piece.finish == Finish::Length;
    close();
  }
  void end(const Usage& usage) override {
    Json whole = response(cut_ ? "incomplete" : "completed");
    if (cut_) whole["incomplete_details"] = {{"reason", "max_output_tokens"}};
    whole["usage"] = response_usage(usage);
    if (form_.keep) form_.keep(whole, message_);
    over(whole);
  }

 protected:
  virtual void say(const char* type, Json event) = 0;
  virtual void over(const Json& response) = 0;

  Json response(const char* status) const {
    Json out = {{"id", form_.answer.head.id},
                {"object", "response"},
                {"created_at", form_.answer.head.created},
                {"status", status},
                {"background", false},
                {"error", nullptr},
                {"incomplete_details", nullptr},
                {"model", form_.answer.head.model},
                {"output", output_},
                {"usage", nullptr}};
    out.update(form_.shown);
    return out;
  }

 private:
  bool continues(const ChatDelta& d) const {
    if (d.kind == Kind::ToolName) return false;
    return d.kind == open_ || (d.kind == Kind::ToolArguments && open_ == Kind::ToolName);
  }
  Json logprobs_of(const AnswerPiece& piece) const {
    if (form_.answer.top_logprobs < 0) return Json::array();
    return logprobs_json(*form_.answer.tokenizer, piece.tokens, form_.answer.top_logprobs)["content"];
  }
  size_t index() const { return output_.size() - 1; }
  // Where an event belongs.
  Json place(bool in_content) const {
    Json at = {{"item_id", output_.back()["id"]}, {"output_index", index()}};
    if (in_content) at["content_index"] = 0;
    return at;
  }
  void say_at(const char* type, bool in_content, Json more) {
    Json event = place(in_content);
    event.update(more);
    say(type, std::move(event));
  }

  void open(const ChatDelta& d) {
    close();
    is_open_ = true;
    open_ = d.kind;
    Json item;
    if (d.kind == Kind::Content) {
      item = {{"id", random_id("msg_", 48)}, {"type", "message"}, {"role", "assistant"}, {"content", Json::array()}};
    } else if (d.kind == Kind::Reasoning) {
      item = {{"id", random_id("rs_", 48)}, {"type", "reasoning"}, {"summary", Json::array()}};
      item["content"] = Json::array();
    } else {
      item = {{"id", random_id("fc_", 48)},
              {"type", "function_call"},
              {"call_id", call_id(form_.answer.tool_format)},
              {"name", d.text},
              {"arguments", ""}};
    }
    item["status"] = "in_progress";
    output_.push_back(std::move(item));
    say("response.output_item.added", {{"output_index", index()}, {"item", output_.back()}});
    if (d.kind == Kind::ToolName) return;
    const Json part =
        d.kind == Kind::Content
            ? Json{{"type", "output_text"}, {"text", ""}, {"annotations", Json::array()}, {"logprobs", Json::array()}}
            : Json{{"type", "reasoning_text"}, {"text", ""}};
    output_.back()["content"].push_back(part);
    say_at("response.content_part.added", true, {{"part", part}});
  }

  void add(const ChatDelta& d, const Json& logprobs) {
    Json& item = output_.back();
    if (open_ == Kind::ToolName) {
      item["arguments"].get_ref<std::string&>() += d.text;
      return say_at("response.function_call_arguments.delta", false, {{"delta", d.text}});
    }
    Json& part = item["content"][0];
    part["text"].get_ref<std::string&>() += d.text;
    if (open_ == Kind::Reasoning) return say_at("response.reasoning_text.delta", true, {{"delta", d.text}});
    for (const Json& one : logprobs) part["logprobs"].push_back(one);
    say_at("response.output_text.delta", true, {{"delta", d.text}, {"logprobs", logprobs}});
  }

  void close() {
    if (!std::exchange(is_open_, false)) return;
    Json& item = output_.back();
    item["status"] = cut_ ? "incomplete" : "completed";
    if (open_ == Kind::ToolName) {
      say_at("response.function_call_arguments.done", false,
             {{"name", item["name"]}, {"arguments", item["arguments"]}});
      if (!message_.contains("tool_calls")) message_["tool_calls"] = Json::array();
      message_["tool_calls"].push_back({{"id", item["call_id"]},
                                        {"type", "function"},
                                        {"function", {{"name", item["name"]}, {"arguments", item["arguments"]}}}});
    } else {
      const Json& part = item["content"][0];
      const bool words = open_ == Kind::Content;
      Json done = {{"text", part["text"]}};
      if (words) done["logprobs"] = part["logprobs"];
      say_at(words ? "response.output_text.done" : "response.reasoning_text.done", true, std::move(done));
      say_at("response.content_part.done", true, {{"part", part}});
      message_[words ? "content" : "reasoning_content"] = part["text"];
    }
    say("response.output_item.done", {{"output_index", index()}, {"item", output_.back()}});
  }

 protected:
  const ResponseForm form_;

 private:
  Json output_ = Json::array(), message_ = {{"role", "assistant"}, {"content", ""}};
  Kind open_ = Kind::Content;
  bool is_open_ = false, cut_ = false;
};

class WholeResponse : public ResponseWriter {
 public:
  WholeResponse(ResponseForm form, WholeSink sink) : ResponseWriter(std::move(form)), sink_(std::move(sink)) {}
  void fail(const ApiError& error) override { sink_.failed(error); }

 private:
  void say(const char*, Json) override {}
  void over(const Json& response) override { sink_.done(response); }
  const WholeSink sink_;
};

class StreamedResponse : public ResponseWriter {
 public:
  StreamedResponse(ResponseForm form, std::shared_ptr<Responder> reply)
      : ResponseWriter(std::move(form)), reply_(std::move(reply)) {}
  void begin(const Usage& usage) override {
    reply_->begin({.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}});
    ResponseWriter::begin(usage);
  }
  void fail(const ApiError& error) override {
    Json failed = response("failed");
    failed["error"] = {{"code", "server_error"}, {"message", error.what()}};
    say("response.failed", {{"response", failed}});
    reply_->end();
  }

 private:
  void say(const char* type, Json event) override {
    Json all = {{"type", type}, {"sequence_number", sequence_++}};
    all.update(event);
    reply_->write(std::string("event: ") + type + "\n" + sse_data(all));
  }
  void over(const Json& response) override {
    say(response["status"] == "completed" ? "response.completed" : "response.incomplete", {{"response", response}});
    reply_->end();
  }
  const std::shared_ptr<Responder> reply_;
  int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<AnswerWriter> whole_response(ResponseForm form, WholeSink sink) {
  return std::make_unique<WholeResponse>(std::move(form), std::move(sink));
}
std::unique_ptr<AnswerWriter> streamed_response(ResponseForm form, std::shared_ptr<Responder> reply) {
  return std::make_unique<StreamedResponse>(std::move(form), std::move(reply));
}

}  // namespace apus
