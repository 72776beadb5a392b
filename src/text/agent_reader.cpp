// SPDX-License-Identifier: Apache-2.0
#include "text/agent_reader.h"

#include "text/qwen_coder_reader.h"

namespace apus {

namespace {

using Status = CallReader::Status;
constexpr size_t kLongestWord = 500;

std::string bare_word(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace

Status ReactReader::put(char c, CallSink& sink) {
  switch (place_) {
    case Place::Name:
      if (c != '\n') {
        text_ += c;
        return text_.size() < kLongestWord ? Status::More : Status::Bad;
      }
      name_ = bare_word(text_);
      text_.clear();
      place_ = Place::Input;
      return name_.empty() ? Status::Bad : Status::More;
    case Place::Input:
      if (text_.empty() && is_blank(c)) return Status::More;
      text_ += c;
      if (text_ == words_.input) text_.clear(), place_ = Place::Arguments;
      return place_ == Place::Arguments || words_.input.starts_with(text_) ? Status::More : Status::Bad;
    case Place::Arguments: {
      if (text_.empty() && is_blank(c)) return Status::More;
      if (text_.empty() && c != '{') return Status::Bad;
      const JsonScanner::Status status = scanner_.put(c);
      if (status == JsonScanner::Status::Bad) return Status::Bad;
      text_ += c;
      if (status == JsonScanner::Status::More) return Status::More;
      sink.name(name_);
      sink.arguments(text_);
      sink.done();
      text_.clear();
      place_ = Place::End;
      return Status::More;
    }
    case Place::End:
      if (text_.empty() && is_blank(c)) return Status::More;
      text_ += c;
      if (text_ == words_.observation) return Status::Closed;
      return words_.observation.starts_with(text_) ? Status::More : Status::Outside;
  }
  return Status::Bad;
}

Status ReactReader::finish(CallSink&) { return place_ == Place::End ? Status::Closed : Status::Bad; }

Status GlmReader::put(char c, CallSink& sink) {
  if (text_.empty() && is_blank(c) && place_ != Place::Value) return Status::More;
  text_ += c;
  const auto ends = [&](std::string_view mark) {
    if (!text_.ends_with(mark)) return false;
    text_.resize(text_.size() - mark.size());
    return true;
  };
  switch (place_) {
    case Place::Name:
      if (c != '<' && c != '\n') return text_.size() < kLongestWord ? Status::More : Status::Bad;
      text_.pop_back();
      name_ = bare_word(text_);
      text_.assign(c == '<' ? 1 : 0, '<');
      place_ = Place::Between;
      return name_.empty() || name_.find_first_of("{}\"") != std::string::npos ? Status::Bad : Status::More;
    case Place::Between:
      return put_between(sink);
    case Place::Key:
      if (ends("</arg_key>")) key_ = bare_word(text_), text_.clear(), place_ = Place::BeforeValue;
      return text_.size() < kLongestWord ? Status::More : Status::Bad;
    case Place::BeforeValue:
      if (text_ == "<arg_value>") text_.clear(), place_ = Place::Value;
      return place_ == Place::Value || std::string_view("<arg_value>").starts_with(text_) ? Status::More : Status::Bad;
    case Place::Value:
      if (!ends("</arg_value>")) return Status::More;
      if (!any_) sink.name(name_);
      sink.arguments((any_ ? ", " : "{") + as_json_string(key_) + ": " + json_argument(text_, tools_, name_, key_));
      any_ = true;
      text_.clear();
      place_ = Place::Between;
      return Status::More;
  }
  return Status::Bad;
}

Status GlmReader::put_between(CallSink& sink) {
  constexpr std::string_view kKey = "<arg_key>", kEnd = "</tool_call>";
  if (text_ == kKey) {
    text_.clear();
    place_ = Place::Key;
    return Status::More;
  }
  if (text_ == kEnd) {
    if (!any_) sink.name(name_);
    sink.arguments(any_ ? "}" : "{}");
    sink.done();
    return Status::Closed;
  }
  return kKey.starts_with(text_) || kEnd.starts_with(text_) ? Status::More : Status::Bad;
}

Status GlmReader::finish(CallSink&) { return Status::Bad; }

}  // namespace apus
