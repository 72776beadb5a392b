// SPDX-License-Identifier: Apache-2.0
// The readers of the formats whose calls are JSON: Hermes, Llama 3, DeepSeek and Kimi, Mistral, lists between words.
#include "text/call_reader.h"

#include <optional>

#include "text/agent_reader.h"
#include "text/json_call.h"
#include "text/qwen_coder_reader.h"

namespace apus {

namespace {

using Status = CallReader::Status;

// What stands around the calls of a section, and around the name and the arguments of each.
struct SectionWords {
  std::string_view all_begin, begin, separator, end, all_end;
};
constexpr SectionWords kDeepSeekWords = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                                         "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"};
constexpr SectionWords kKimiWords = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>",
                                     "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"};

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
  MarkerReader tail_;
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

// The name in Kimi's "functions.name:0", whose number counts the calls; any other name as it is.
std::string without_number(std::string_view id) {
  if (id.starts_with("functions.")) id.remove_prefix(10);
  const size_t colon = id.rfind(':');
  const bool numbered = colon != std::string_view::npos && colon + 1 < id.size() &&
                        id.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return std::string(numbered ? id.substr(0, colon) : id);
}

// <|tool_calls_begin|> <|tool_call_begin|>name<|tool_sep|>{...}<|tool_call_end|> ... <|tool_calls_end|>, and DeepSeek
// V3's form: <|tool_call_begin|>function<|tool_sep|>name, then the arguments in a fenced block of code.
class SectionReader : public CallReader {
 public:
  SectionReader(const SectionWords& words, std::string_view marker)
      : place_(marker == words.begin ? Place::Head : Place::Between), words_(words) {}
  Status put(char c, CallSink& sink) override {
    bool wrong = false;
    switch (place_) {
      case Place::Between: {
        const auto word = tail_.put(c, {words_.begin, words_.all_end}, wrong);
        if (word == words_.all_end) return Status::Closed;
        if (word == words_.begin) place_ = Place::Head;
        return wrong ? Status::Outside : Status::More;
      }
      case Place::Head:
        head_ += c;
        if (!head_.ends_with(words_.separator)) return head_.size() < 500 ? Status::More : Status::Bad;
        head_.resize(head_.size() - words_.separator.size());
        fenced_ = trimmed_text(head_) == "function";
        if (!fenced_) arguments_.emplace(without_number(trimmed_text(head_)));
        place_ = fenced_ ? Place::Name : Place::Arguments;
        head_.clear();
        return Status::More;
      case Place::Name:
        head_ += c;
        if (!head_.ends_with("```json\n")) return head_.size() < 500 ? Status::More : Status::Bad;
        arguments_.emplace(trimmed_text(std::string_view(head_).substr(0, head_.size() - 8)));
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
        if (!tail_.put(c, {words_.end}, wrong).empty()) place_ = Place::Between;
        return wrong ? Status::Outside : Status::More;
    }
    return Status::Bad;
  }
  Status finish(CallSink&) override {
    return place_ == Place::Between || place_ == Place::Fence || place_ == Place::End ? Status::Closed : Status::Bad;
  }

 private:
  enum class Place { Between, Head, Name, Arguments, Fence, End } place_;
  const SectionWords& words_;
  MarkerReader tail_;
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
    const std::string name = trimmed_text(head_.substr(0, head_.find("[CALL_ID]")));
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

// Objects, in a list or one behind the other, up to a closing word: [{...}, {...}]<|/tool_call|>.
class ObjectsReader : public CallReader {
 public:
  explicit ObjectsReader(std::string_view close) : close_(close) {}
  Status put(char c, CallSink& sink) override {
    switch (place_) {
      case Place::Start:
        if (is_blank(c)) return Status::More;
        listed_ = c == '[';
        place_ = Place::Item;
        if (listed_) return Status::More;
        [[fallthrough]];
      case Place::Item:
        return put_item(c, sink);
      case Place::AfterItem:
        if (is_blank(c)) return Status::More;
        if (listed_ && c != ']' && c != ',') return Status::Outside;
        place_ = listed_ && c == ']' ? Place::Closing : c == ',' || c == '{' ? Place::Item : Place::Closing;
        if (c == ',' || (listed_ && c == ']')) return Status::More;
        return put(c, sink);
      case Place::Closing: {
        bool wrong = false;
        const auto word = tail_.put(c, {close_}, wrong);
        return wrong ? Status::Outside : word.empty() ? Status::More : Status::Closed;
      }
    }
    return Status::Bad;
  }
  Status finish(CallSink&) override {
    return place_ == Place::Closing || (place_ == Place::AfterItem && !listed_) ? Status::Closed : Status::Bad;
  }

 private:
  Status put_item(char c, CallSink& sink) {
    if (!call_) {
      if (is_blank(c)) return Status::More;
      if (c == ']' && listed_ && !any_) return place_ = Place::Closing, Status::More;
      call_.emplace();
    }
    const auto status = call_->put(c, sink);
    if (status == JsonScanner::Status::Bad) return Status::Bad;
    if (status == JsonScanner::Status::More) return Status::More;
    if (!call_->has_name()) return Status::Bad;
    call_->complete(sink);
    call_.reset();
    any_ = true;
    place_ = Place::AfterItem;
    return Status::More;
  }

  enum class Place { Start, Item, AfterItem, Closing } place_ = Place::Start;
  const std::string_view close_;
  MarkerReader tail_;
  std::optional<JsonCall> call_;
  bool listed_ = false, any_ = false;
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
      return {kDeepSeekWords.all_begin, kDeepSeekWords.begin};
    case ToolFormat::Kimi:
      return {kKimiWords.all_begin, kKimiWords.begin};
    case ToolFormat::ToolList:
      return {"<|tool_call|>"};
    case ToolFormat::ToolCalls:
      return {"<tool_calls>"};
    case ToolFormat::Plugin:
      return {"<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"};
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
    case ToolFormat::Harmony:  // has a reader of whole answers
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
      return std::make_unique<SectionReader>(kDeepSeekWords, marker);
    case ToolFormat::Kimi:
      return std::make_unique<SectionReader>(kKimiWords, marker);
    case ToolFormat::ToolList:
      return std::make_unique<ObjectsReader>("<|/tool_call|>");
    case ToolFormat::ToolCalls:
      return std::make_unique<ObjectsReader>("</tool_calls>");
    case ToolFormat::Plugin:
      return std::make_unique<ObjectsReader>("<|action_end|>");
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
    case ToolFormat::Harmony:
    case ToolFormat::None:
      break;
  }
  return nullptr;
}

}  // namespace apus
