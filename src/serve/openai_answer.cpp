// SPDX-License-Identifier: Apache-2.0
#include "serve/openai_answer.h"

#include <openssl/rand.h>

#include "base/error.h"
#include "text/unicode.h"

namespace apus {

std::string random_id(const char* prefix, int letters) {
  std::vector<unsigned char> bytes(static_cast<size_t>(letters));
  require(RAND_bytes(bytes.data(), letters) == 1, Fault::Io, "the system gives no random bytes");
  std::string id = prefix;
  for (const unsigned char b : bytes) id += "0123456789abcdef"[b & 15];
  return id;
}

std::string call_id(ToolFormat format) {
  // Mistral's templates insist on nine characters.
  return format == ToolFormat::Mistral ? random_id("", 9) : random_id("call_", 24);
}

Json usage_json(const Usage& u) {
  Json details = {{"reasoning_tokens", u.reasoning}};
  if (u.drafted > 0)
    details.update(
        {{"accepted_prediction_tokens", u.accepted}, {"rejected_prediction_tokens", u.drafted - u.accepted}});
  return {{"prompt_tokens", u.prompt},
          {"completion_tokens", u.completion},
          {"total_tokens", u.prompt + u.completion},
          {"prompt_tokens_details", {{"cached_tokens", u.cached}}},
          {"completion_tokens_details", std::move(details)}};
}

std::string sse_data(const Json& event) { return "data: " + json_text(event) + "\n\n"; }

Json prompt_logprobs_json(const Tokenizer& tokenizer, const std::vector<TokenOut>& prompt) {
  Json list = Json::array();
  for (const auto& t : prompt) {
    if (list.empty()) {
      list.push_back(nullptr);  // nothing stands before the first token
      continue;
    }
    Json entry = Json::object();
    const auto add = [&](int32_t id, float logprob, Json rank) {
      const std::string text = tokenizer.token_bytes(id);
      entry[std::to_string(id)] = {{"logprob", logprob}, {"rank", std::move(rank)}, {"decoded_token", text}};
    };
    add(t.id, t.logprob, nullptr);
    for (size_t i = 0; i < t.top.size(); ++i) add(t.top[i].first, t.top[i].second, i + 1);
    list.push_back(std::move(entry));
  }
  return list;
}

namespace {

std::string finish_reason(const AnswerForm& form, Finish finish, bool calls) {
  if (finish != Finish::Stop || !calls) return finish_name(finish);
  return form.old_functions ? "function_call" : "tool_calls";
}

Json head_json(const AnswerHead& head, const char* object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint}};
}

Json chat_logprobs(const AnswerForm& form, const std::vector<TokenOut>& tokens) {
  Json out = logprobs_json(*form.tokenizer, tokens, form.top_logprobs);
  out["refusal"] = nullptr;
  return out;
}

Json id_list(const std::vector<TokenOut>& tokens) {
  Json ids = Json::array();
  for (const auto& t : tokens) ids.push_back(t.id);
  return ids;
}

// One answer as it grows, until it is whole.
struct GrowingAnswer {
  std::string content, reasoning;
  Json calls = Json::array();
  std::vector<TokenOut> tokens, prompt;
  Finish finish = Finish::None;
  std::string stop;

  void add(const AnswerPiece& piece, ToolFormat format) {
    for (const auto& d : piece.deltas) {
      switch (d.kind) {
        case ChatDelta::Kind::Content:
          content += d.text;
          break;
        case ChatDelta::Kind::Reasoning:
          reasoning += d.text;
          break;
        case ChatDelta::Kind::ToolName:
          calls.push_back(
              {{"id", call_id(format)}, {"type", "function"}, {"function", {{"name", d.text}, {"arguments", ""}}}});
          break;
        case ChatDelta::Kind::ToolArguments:
          calls.back()["function"]["arguments"].get_ref<std::string&>() += d.text;
          break;
      }
    }
    tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
    finish = piece.finish;
    stop = piece.stop;
  }
};

class Whole : public AnswerWriter {
 public:
  Whole(AnswerForm form, WholeSink sink) : form_(std::move(form)), sink_(std::move(sink)), answers_(form_.answers) {}
  void prompt(size_t index, std::vector<TokenOut> tokens) override { answers_[index].prompt = std::move(tokens); }
  void piece(const AnswerPiece& piece, const Usage&) override { answers_[piece.index].add(piece, form_.tool_format); }
  void fail(const ApiError& error) override { sink_.failed(error); }

 protected:
  const AnswerForm form_;
  const WholeSink sink_;
  std::vector<GrowingAnswer> answers_;
};

class WholeChat : public Whole {
 public:
  using Whole::Whole;
  void end(const Usage& usage) override {
    Json out = head_json(form_.head, "chat.completion");
    Json& choices = out["choices"] = Json::array();
    for (size_t i = 0; i < answers_.size(); ++i) choices.push_back(choice(i));
    out["usage"] = usage_json(usage);
    if (!answers_[0].prompt.empty())
      out["prompt_logprobs"] = prompt_logprobs_json(*form_.tokenizer, answers_[0].prompt);
    if (form_.token_ids) out["prompt_token_ids"] = form_.prompt_ids;
    sink_.done(std::move(out));
  }

 private:
  Json choice(size_t i) const {
    const GrowingAnswer& answer = answers_[i];
    Json message = {{"role", "assistant"},
                    {"content", answer.content.empty() && !answer.calls.empty() ? Json() : Json(answer.content)},
                    {"refusal", nullptr}};
    if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
    if (form_.boxes) message["boxes"] = form_.boxes(answer.content);
    if (!answer.calls.empty() && form_.old_functions)
      message["function_call"] = answer.calls[0]["function"];
    else if (!answer.calls.empty())
      message["tool_calls"] = answer.calls;
    Json out = {{"index", i},
                {"message", std::move(message)},
                {"logprobs", nullptr},
                {"finish_reason", finish_reason(form_, answer.finish, !answer.calls.empty())}};
    if (form_.top_logprobs >= 0) out["logprobs"] = chat_logprobs(form_, answer.tokens);
    if (!answer.stop.empty()) out["stop_reason"] = answer.stop;
    if (form_.token_ids) out["token_ids"] = id_list(answer.tokens);
    return out;
  }
};

// A token as the completions API names it: half a character by its bytes, or several would have the same name.
std::string token_name(const std::string& bytes) {
  if (unicode::valid_prefix(bytes) == bytes.size()) return bytes;
  std::string name = "bytes:";
  for (const char b : bytes) {
    name += "\\x";
    for (const int shift : {4, 0}) name += "0123456789abcdef"[(static_cast<unsigned char>(b) >> shift) & 15];
  }
  return name;
}

// The completions API's own form of log-probs; offsets count characters.
class TokenTable {
 public:
  TokenTable(const Tokenizer& tokenizer, int64_t top) : tokenizer_(tokenizer), top_(top) {}
  void add(const TokenOut& t, bool has_logprob, int64_t& offset) {
    const std::string text = tokenizer_.token_bytes(t.id), name = token_name(text);
    tokens_.push_back(name);
    logprobs_.push_back(has_logprob ? Json(t.logprob) : Json());
    Json best = Json::object();
    for (size_t i = 0; i < t.top.size() && static_cast<int64_t>(i) < top_; ++i)
      best[token_name(tokenizer_.token_bytes(t.top[i].first))] = t.top[i].second;
    if (!best.empty()) best[name] = t.logprob;
    tops_.push_back(has_logprob && top_ > 0 ? std::move(best) : Json());
    offsets_.push_back(offset);
    for (const char c : text) offset += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }
  Json json() const {
    return {{"text_offset", offsets_}, {"token_logprobs", logprobs_}, {"tokens", tokens_}, {"top_logprobs", tops_}};
  }

 private:
  const Tokenizer& tokenizer_;
  const int64_t top_;
  Json tokens_ = Json::array(), logprobs_ = Json::array(), tops_ = Json::array(), offsets_ = Json::array();
};

// The prompt of an answer.
std::string echo_of(const AnswerForm& form, size_t answer) {
  return form.echo.empty() ? "" : form.echo[answer * form.echo.size() / form.answers];
}
Usage shown(const AnswerForm& form, Usage usage) {
  if (form.only_prompt) usage.completion = 0;
  return usage;
}

class WholeCompletion : public Whole {
 public:
  using Whole::Whole;
  void end(const Usage& all) override {
    const Usage usage = shown(form_, all);
    Json out = head_json(form_.head, "text_completion");
    Json& choices = out["choices"] = Json::array();
    for (size_t i = 0; i < answers_.size(); ++i) choices.push_back(choice(i));
    out["usage"] = usage_json(usage);
    sink_.done(std::move(out));
  }

 private:
  Json choice(size_t i) const {
    const GrowingAnswer& answer = answers_[i];
    Json out = {{"index", i},
                {"text", echo_of(form_, i) + (form_.only_prompt ? "" : answer.content)},
                {"logprobs", nullptr},
                {"finish_reason", form_.only_prompt ? "length" : finish_name(answer.finish)}};
    if (form_.top_logprobs >= 0) {
      TokenTable table(*form_.tokenizer, form_.top_logprobs);
      int64_t offset = 0;
      if (!form_.echo.empty())
        for (size_t t = 0; t < answer.prompt.size(); ++t) table.add(answer.prompt[t], t > 0, offset);
      if (!form_.only_prompt)
        for (const auto& t : answer.tokens) table.add(t, true, offset);
      out["logprobs"] = table.json();
    }
    if (!answer.prompt.empty() && form_.echo.empty())
      out["prompt_logprobs"] = prompt_logprobs_json(*form_.tokenizer, answer.prompt);
    if (!answer.stop.empty()) out["stop_reason"] = answer.stop;
    if (form_.token_ids) out["token_ids"] = id_list(answer.tokens);
    return out;
  }
};

class Streamed : public AnswerWriter {
 public:
  Streamed(AnswerForm form, std::shared_ptr<Responder> reply, const char* object)
      : form_(std::move(form)), reply_(std::move(reply)), object_(object), unseen_(form_.answers) {}

  void begin(const Usage&) override {
    reply_->begin({.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}});
  }
  void end(const Usage& usage) override {
    if (form_.stream_usage) {
      Json last = head_json(form_.head, object_);
      last["choices"] = Json::array();
      last["usage"] = usage_json(usage);
      reply_->write(sse_data(last));
    }
    reply_->write("data: [DONE]\n\n");
    reply_->end();
  }
  void fail(const ApiError& error) override {
    reply_->write(sse_data(openai_error(error)) + "data: [DONE]\n\n");
    reply_->end();
  }

 protected:
  void chunk(Json choice, const Usage& usage) {
    Json out = head_json(form_.head, object_);
    out["choices"] = Json::array({std::move(choice)});
    if (form_.usage_in_every_chunk)
      out["usage"] = usage_json(usage);
    else if (form_.stream_usage)
      out["usage"] = nullptr;
    reply_->write(sse_data(out));
  }
  void keep_tokens(const AnswerPiece& piece) {
    if (form_.top_logprobs < 0 && !form_.token_ids) return;
    auto& unseen = unseen_[piece.index];
    unseen.insert(unseen.end(), piece.tokens.begin(), piece.tokens.end());
  }
  // Whoever follows the usage is told of tokens that show no text yet.
  bool counts(const AnswerPiece& piece) const { return form_.usage_in_every_chunk && !piece.tokens.empty(); }
  // Log-probs and ids of the tokens since the last chunk: a token may come some time before its text can be shown.
  std::vector<TokenOut> take_tokens(size_t index) { return std::exchange(unseen_[index], {}); }

  const AnswerForm form_;
  const std::shared_ptr<Responder> reply_;
  const char* const object_;
  std::vector<std::vector<TokenOut>> unseen_;
};

class StreamedChat : public Streamed {
 public:
  StreamedChat(AnswerForm form, std::shared_ptr<Responder> reply)
      : Streamed(std::move(form), std::move(reply), "chat.completion.chunk"),
        calls_(form_.answers),
        said_(form_.answers) {}

  void begin(const Usage& usage) override {
    Streamed::begin(usage);
    for (size_t i = 0; i < form_.answers; ++i) say(i, {{"role", "assistant"}, {"content", ""}}, nullptr, usage);
  }
  void piece(const AnswerPiece& piece, const Usage& usage) override {
    keep_tokens(piece);
    for (const auto& d : piece.deltas) say(piece.index, delta_json(piece.index, d), nullptr, usage);
    if (piece.finish != Finish::None)
      say(piece.index, last_delta(piece.index), finish_reason(form_, piece.finish, calls_[piece.index]), usage,
          piece.stop);
    else if (piece.deltas.empty() && counts(piece))
      say(piece.index, Json::object(), nullptr, usage);
  }

 private:
  Json delta_json(size_t index, const ChatDelta& d) {
    switch (d.kind) {
      case ChatDelta::Kind::Content:
        if (form_.boxes) said_[index] += d.text;
        return {{"content", d.text}};
      case ChatDelta::Kind::Reasoning:
        return {{"reasoning_content", d.text}};
      case ChatDelta::Kind::ToolName:
        calls_[index] = true;
        if (form_.old_functions) return {{"function_call", {{"name", d.text}, {"arguments", ""}}}};
        return {{"tool_calls", Json::array({{{"index", d.call},
                                             {"id", call_id(form_.tool_format)},
                                             {"type", "function"},
                                             {"function", {{"name", d.text}, {"arguments", ""}}}}})}};
      case ChatDelta::Kind::ToolArguments:
        break;
    }
    if (form_.old_functions) return {{"function_call", {{"arguments", d.text}}}};
    return {{"tool_calls", Json::array({{{"index", d.call}, {"function", {{"arguments", d.text}}}}})}};
  }
  void say(size_t index, Json delta, Json finish, const Usage& usage, const std::string& stop = "") {
    Json choice = {
        {"index", index}, {"delta", std::move(delta)}, {"logprobs", nullptr}, {"finish_reason", std::move(finish)}};
    if (!stop.empty()) choice["stop_reason"] = stop;
    if (form_.top_logprobs >= 0 || form_.token_ids) {
      const auto tokens = take_tokens(index);
      if (form_.top_logprobs >= 0 && !tokens.empty()) choice["logprobs"] = chat_logprobs(form_, tokens);
      if (form_.token_ids) choice["token_ids"] = id_list(tokens);
    }
    chunk(std::move(choice), usage);
  }
  Json last_delta(size_t index) const {
    return form_.boxes ? Json{{"boxes", form_.boxes(said_[index])}} : Json::object();
  }
  std::vector<char> calls_;        // has this answer called a tool?
  std::vector<std::string> said_;  // where its boxes are wanted
};

class StreamedCompletion : public Streamed {
 public:
  StreamedCompletion(AnswerForm form, std::shared_ptr<Responder> reply)
      : Streamed(std::move(form), std::move(reply), "text_completion"),
        offsets_(form_.answers),
        prompts_(form_.answers),
        begun_(form_.answers) {}

  void prompt(size_t index, std::vector<TokenOut> tokens) override { prompts_[index] = std::move(tokens); }
  void piece(const AnswerPiece& piece, const Usage& usage) override {
    const size_t i = piece.index;
    const bool echoes = !form_.echo.empty() && !begun_[i];
    begun_[i] = true;
    if (!form_.only_prompt) keep_tokens(piece);
    std::string text = echoes ? echo_of(form_, i) : "";
    for (const auto& d : piece.deltas)
      if (!form_.only_prompt) text += d.text;
    if (text.empty() && piece.finish == Finish::None && !counts(piece)) return;
    Json choice = {{"index", i}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    if (piece.finish != Finish::None)
      choice["finish_reason"] = form_.only_prompt ? "length" : finish_name(piece.finish);
    if (!piece.stop.empty()) choice["stop_reason"] = piece.stop;
    const auto tokens = take_tokens(i);
    if (form_.top_logprobs >= 0) {
      TokenTable table(*form_.tokenizer, form_.top_logprobs);
      if (echoes)
        for (size_t t = 0; t < prompts_[i].size(); ++t) table.add(prompts_[i][t], t > 0, offsets_[i]);
      for (const auto& t : tokens) table.add(t, true, offsets_[i]);
      choice["logprobs"] = table.json();
    }
    if (form_.token_ids) choice["token_ids"] = id_list(tokens);
    chunk(std::move(choice), shown(form_, usage));
  }
  void end(const Usage& usage) override { Streamed::end(shown(form_, usage)); }

 private:
  std::vector<int64_t> offsets_;
  std::vector<std::vector<TokenOut>> prompts_;  // with their log-probs
  std::vector<char> begun_;
};

}  // namespace

std::unique_ptr<AnswerWriter> whole_chat(AnswerForm form, WholeSink sink) {
  return std::make_unique<WholeChat>(std::move(form), std::move(sink));
}
std::unique_ptr<AnswerWriter> streamed_chat(AnswerForm form, std::shared_ptr<Responder> reply) {
  return std::make_unique<StreamedChat>(std::move(form), std::move(reply));
}
std::unique_ptr<AnswerWriter> whole_completion(AnswerForm form, WholeSink sink) {
  return std::make_unique<WholeCompletion>(std::move(form), std::move(sink));
}
std::unique_ptr<AnswerWriter> streamed_completion(AnswerForm form, std::shared_ptr<Responder> reply) {
  return std::make_unique<StreamedCompletion>(std::move(form), std::move(reply));
}

}  // namespace apus
