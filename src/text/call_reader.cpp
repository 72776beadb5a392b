// SPDX-License-Identifier: Apache-2.0
// The readers of the formats whose calls are JSON: Hermes, Llama 3, DeepSeek, Mistral.
#include "text/call_reader.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "text/agent_reader.h"
#include "text/json_scanner.h"
#include "text/qwen_coder_reader.h"

namespace apus {

namespace {

using Status = CallReader::Status;

constexpr std::string_view kBegin = "<｜tool▁call▁begin｜>", kSeparator = "<｜tool▁sep｜>",
                           kEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kAllBegin = "<｜tool▁calls▁begin｜>", kAllEnd = "<｜tool▁calls▁end｜>";

std::string trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

// The text that a JSON string stands for; absent when it is none (a lone surrogate).
std::optional<std::string> string_of(const std::string& json) {
  const Json value = Json::parse(json, nullptr, false);
  if (!value.is_string()) return {};
  return value.get<std::string>();
}

// {"name": ..., "arguments" or "parameters": ...}. Arguments are passed on as they come, once the name is known.
class JsonCall {
 public:
  JsonScanner::Status put(char c, CallSink& sink) {
    const JsonScanner::Status status = scanner_.put(c);
    if (status == JsonScanner::Status::Bad || (text_.empty() && c != '{')) return JsonScanner::Status::Bad;
    text_ += c;
    if (scanner_.value_begins()) {
      begin_ = text_.size() - 1;
      const std::string& key = scanner_.member();
      member_ = key == "name" && !name_                                          ? Member::Name
                : (key == "arguments" || key == "parameters") && !has_arguments_ ? Member::Arguments
                                                                                 : Member::Other;
      if (member_ == Member::Arguments && c != '{' && c != '"' && c != 'n') return JsonScanner::Status::Bad;
    }
    if (scanner_.value_ended() && !end_member(sink)) return JsonScanner::Status::Bad;
    if (member_ == Member::Arguments && name_ && text_[begin_] == '{') stream(sink);
    return status;
  }

  bool has_name() const { return name_.has_value(); }
  bool has_arguments() const { return has_arguments_; }

  // After the object: what was not shown yet.
  void complete(CallSink& sink) {
    if (!shown_) sink.name(*name_);
    if (shown_ < arguments_.size() || arguments_.empty())
      sink.arguments(arguments_.empty() ? "{}" : std::string_view(arguments_).substr(shown_));
    sink.done();
  }

 private:
  enum class Member { Other, Name, Arguments };

  // Shows the arguments so far, but not the brace alone: its next character may already be wrong.
  void stream(CallSink& sink) {
    const size_t have = text_.size() - begin_;
    if (have < 2) return;
    if (!shown_) sink.name(*name_);
    sink.arguments(std::string_view(text_).substr(begin_ + shown_, have - shown_));
    shown_ = have;
  }

  bool end_member(CallSink& sink) {
    const bool beyond = !(text_.back() == '"' || text_.back() == '}' || text_.back() == ']') || scanner_.depth() == 0;
    const std::string value = trimmed(std::string_view(text_).substr(begin_, text_.size() - begin_ - beyond));
    if (member_ == Member::Name) {
      name_ = string_of(value);
      if (!name_ || name_->empty()) return false;
    } else if (member_ == Member::Arguments) {
      if (text_[begin_] == '{') {
        if (name_) stream(sink);
        arguments_ = value;
      } else if (text_[begin_] == '"') {  // JSON within a JSON string
        arguments_ = string_of(value).value_or("");
        if (!Json::accept(arguments_)) return false;
      } else if (value != "null") {
        return false;
      }
      has_arguments_ = true;
    }
    member_ = Member::Other;
    return true;
  }

  JsonScanner scanner_;
  std::string text_, arguments_;
  std::optional<std::string> name_;
  Member member_ = Member::Other;
  size_t begin_ = 0, shown_ = 0;
  bool has_arguments_ = false;
};

// A list of white space and marker characters that must spell one of a few words.
class Tail {
 public:
  // The word that is now complete; empty: not yet. `wrong`: it can become none.
  std::string_view put(char c, std::initializer_list<std::string_view> words, bool& wrong) {
    if (text_.empty() && is_blank(c)) return {};
    text_ += c;
    wrong = true;
    for (const std::string_view word : words) {
      if (text_ == word) return text_.clear(), wrong = false, word;
      if (word.starts_with(text_)) wrong = false;
    }
    return {};
  }
  bool empty() const { return text_.empty(); }

 private:
  std::string text_;
};

// <tool_call> {...} </tool_call>
class HermesReader : public CallReader {
 public:
  Status put(char c, CallSink& sink) override {
    if (closing_) {
      bool wrong = false;
      const auto word = tail_.put(c, {"</tool_call>"}, wrong);
      return wrong ? Status::Outside : word.empty() ? Status::More : Status::Closed;
    }
    if (!started_ && is_blank(c)) return Status::More;
    started_ = true;
    const auto status = call_.put(c, sink);
    if (status == JsonScanner::Status::Bad) return Status::Bad;
    if (status == JsonScanner::Status::More) return Status::More;
    if (!call_.has_name()) return Status::Bad;
    call_.complete(sink);
    closing_ = true;
    return Status::More;
  }
  Status finish(CallSink&) override { return closing_ ? Status::Closed : Status::Bad; }

 private:
  JsonCall call_;
  Tail tail_;
  bool started_ = false, closing_ = false;
};

// {"name", "parameters"}; {...}: the whole of the answer.
class LlamaReader : public CallReader {
 public:
  explicit LlamaReader(bool braced) {
    if (braced) call_.emplace();
    braced_ = braced;
  }
  Status put(char c, CallSink& sink) override {
    if (braced_) {  // the marker was the object's own brace
      braced_ = false;
      call_->put('{', sink);
    }
    if (!call_) {
      if (is_blank(c) || (c == ';' && any_)) return Status::More;
      if (c != '{') return any_ ? Status::Outside : Status::Bad;
      call_.emplace();
    }
    const auto status = call_->put(c, sink);
    if (status == JsonScanner::Status::Bad) return Status::Bad;
    if (status == JsonScanner::Status::More) return Status::More;
    if (!call_->has_name() || !call_->has_arguments()) return Status::Bad;  // an answer that is JSON
    call_->complete(sink);
    call_.reset();
    any_ = true;
    return Status::More;
  }
  Status finish(CallSink&) override { return any_ && !call_ ? Status::Closed : Status::Bad; }

 private:
  std::optional<JsonCall> call_;
  bool braced_ = false, any_ = false;
};

// A name, then its arguments as a JSON object.
class NamedArguments {
 public:
  explicit NamedArguments(std::string name) : name_(std::move(name)) {}
  JsonScanner::Status put(char c, CallSink& sink) {
    if (text_.empty() && is_blank(c)) return JsonScanner::Status::More;
    if (name_.empty() || (text_.empty() && c != '{')) return JsonScanner::Status::Bad;
    const auto status = scanner_.put(c);
    if (status == JsonScanner::Status::Bad) return status;
    text_ += c;
    if (text_.size() < 2) return status;
    if (!shown_) sink.name(name_);
    sink.arguments(std::string_view(text_).substr(shown_));
    shown_ = text_.size();
    if (status == JsonScanner::Status::Done) sink.done();
    return status;
  }

 private:
  JsonScanner scanner_;
  std::string name_, text_;
  size_t shown_ = 0;
};

// <|tool_calls_begin|> <|tool_call_begin|>name<|tool_sep|>{...}<|tool_call_end|> ... <|tool_calls_end|>, and V3's form:
// <|tool_call_begin|>function<|tool_sep|>name, then the arguments in a fenced block of code.
class DeepSeekReader : public CallReader {
 public:
  explicit DeepSeekReader(bool in_call) : place_(in_call ? Place::Head : Place::Between) {}
  Status put(char c, CallSink& sink) override {
    bool wrong = false;
    switch (place_) {
      case Place::Between: {
        const auto word = tail_.put(c, {kBegin, kAllEnd}, wrong);
        if (word == kAllEnd) return Status::Closed;
        if (word == kBegin) place_ = Place::Head;
        return wrong ? Status::Outside : Status::More;
      }
      case Place::Head:
        head_ += c;
        if (!head_.ends_with(kSeparator)) return head_.size() < 500 ? Status::More : Status::Bad;
        head_.resize(head_.size() - kSeparator.size());
        fenced_ = trimmed(head_) == "function";
        if (!fenced_) arguments_.emplace(trimmed(head_));
        place_ = fenced_ ? Place::Name : Place::Arguments;
        head_.clear();
        return Status::More;
      case Place::Name:
        head_ += c;
        if (!head_.ends_with("```json\n")) return head_.size() < 500 ? Status::More : Status::Bad;
        arguments_.emplace(trimmed(std::string_view(head_).substr(0, head_.size() - 8)));
        place_ = Place::Arguments;
        head_.clear();
        return Status::More;
      case Place::Arguments: {
        const auto status = arguments_->put(c, sink);
        if (status == JsonScanner::Status::Done) place_ = fenced_ ? Place::Fence : Place::End;
        return status == JsonScanner::Status::Bad ? Status::Bad : Status::More;
      }
      case Place::Fence:
        if (!tail_.put(c, {"```"}, wrong).empty()) place_ = Place::End;
        return wrong ? Status::Outside : Status::More;
      case Place::End:
        if (!tail_.put(c, {kEnd}, wrong).empty()) place_ = Place::Between;
        return wrong ? Status::Outside : Status::More;
    }
    return Status::Bad;
  }
  Status finish(CallSink&) override {
    return place_ == Place::Between || place_ == Place::Fence || place_ == Place::End ? Status::Closed : Status::Bad;
  }

 private:
  enum class Place { Between, Head, Name, Arguments, Fence, End } place_;
  Tail tail_;
  std::string head_;
  std::optional<NamedArguments> arguments_;
  bool fenced_ = false;
};

// [TOOL_CALLS][{"name", "arguments"}, ...] or [TOOL_CALLS]name[ARGS]{...}, perhaps with [CALL_ID]id before [ARGS].
class MistralReader : public CallReader {
 public:
  Status put(char c, CallSink& sink) override {
    switch (place_) {
      case Place::Start:
        if (is_blank(c)) return Status::More;
        place_ = c == '[' ? Place::BeforeItem : Place::Name;
        if (c == '[') return Status::More;
        [[fallthrough]];
      case Place::Name:
        return put_name(c, sink);
      case Place::BeforeItem:
        if (is_blank(c)) return Status::More;
        if (c == ']' && !any_) return Status::Closed;
        call_.emplace();
        place_ = Place::Item;
        [[fallthrough]];
      case Place::Item: {
        const auto status = call_->put(c, sink);
        if (status == JsonScanner::Status::Bad) return Status::Bad;
        if (status == JsonScanner::Status::More) return Status::More;
        if (!call_->has_name()) return Status::Bad;
        call_->complete(sink);
        any_ = true;
        place_ = Place::AfterItem;
        return Status::More;
      }
      case Place::AfterItem:
        if (c == ',') place_ = Place::BeforeItem;
        return c == ']' ? Status::Closed : c == ',' || is_blank(c) ? Status::More : Status::Outside;
      case Place::Arguments: {
        const auto status = arguments_->put(c, sink);
        return status == JsonScanner::Status::Bad    ? Status::Bad
               : status == JsonScanner::Status::Done ? Status::Closed
                                                     : Status::More;
      }
    }
    return Status::Bad;
  }
  Status finish(CallSink&) override { return place_ == Place::AfterItem ? Status::Closed : Status::Bad; }

 private:
  Status put_name(char c, CallSink& sink) {
    if (c == '{') return begin_arguments(sink, c);
    head_ += c;
    if (head_.ends_with("[ARGS]")) {
      head_.resize(head_.size() - 6);
      return begin_arguments(sink, '\0');
    }
    return head_.size() < 500 ? Status::More : Status::Bad;
  }
  Status begin_arguments(CallSink& sink, char first) {
    const std::string name = trimmed(head_.substr(0, head_.find("[CALL_ID]")));
    if (name.empty() || name.find_first_of(" \n[]") != std::string::npos) return Status::Bad;
    arguments_.emplace(name);
    place_ = Place::Arguments;
    return first ? put(first, sink) : Status::More;
  }

  enum class Place { Start, Name, BeforeItem, Item, AfterItem, Arguments } place_ = Place::Start;
  std::string head_;
  std::optional<JsonCall> call_;
  std::optional<NamedArguments> arguments_;
  bool any_ = false;
};

}  // namespace

std::vector<std::string_view> call_markers(ToolFormat format) {
  switch (format) {
    case ToolFormat::Hermes:
      return {"<tool_call>"};
    case ToolFormat::Llama3:
      return {"<|python_tag|>", "{"};  // the brace only where the answer begins
    case ToolFormat::QwenCoder:
      return {"<tool_call>", "<function="};
    case ToolFormat::DeepSeek:
      return {kAllBegin, kBegin};
    case ToolFormat::Mistral:
      return {"[TOOL_CALLS]"};
    case ToolFormat::SeedOss:
      return {"<seed:tool_call>", "<function="};
    case ToolFormat::Glm:
      return {"<tool_call>"};
    case ToolFormat::React:
      return {kReactWords.action};
    case ToolFormat::Flower:
      return {kFlowerWords.action};
    case ToolFormat::None:
      break;
  }
  return {};
}

std::unique_ptr<CallReader> make_call_reader(ToolFormat format, std::string_view marker, const Json* tools) {
  switch (format) {
    case ToolFormat::Hermes:
      return std::make_unique<HermesReader>();
    case ToolFormat::Llama3:
      return std::make_unique<LlamaReader>(marker == "{");
    case ToolFormat::QwenCoder:
      return std::make_unique<QwenCoderReader>(marker == "<function=", tools);
    case ToolFormat::DeepSeek:
      return std::make_unique<DeepSeekReader>(marker == kBegin);
    case ToolFormat::Mistral:
      return std::make_unique<MistralReader>();
    case ToolFormat::SeedOss:
      return std::make_unique<QwenCoderReader>(marker == "<function=", tools, "</seed:tool_call>");
    case ToolFormat::Glm:
      return std::make_unique<GlmReader>(tools);
    case ToolFormat::React:
      return std::make_unique<ReactReader>(kReactWords);
    case ToolFormat::Flower:
      return std::make_unique<ReactReader>(kFlowerWords);
    case ToolFormat::None:
      break;
  }
  return nullptr;
}

}  // namespace apus
