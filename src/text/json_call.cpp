// SPDX-License-Identifier: Apache-2.0
#include "text/json_call.h"

#include <nlohmann/json.hpp>

namespace apus {

std::string trimmed_text(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

namespace {

// The text that a JSON string stands for; absent when it is none (a lone surrogate).
std::optional<std::string> string_of(const std::string& json) {
  const Json value = Json::parse(json, nullptr, false);
  if (!value.is_string()) return {};
  return value.get<std::string>();
}

}  // namespace

JsonScanner::Status JsonCall::put(char c, CallSink& sink) {
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

void JsonCall::complete(CallSink& sink) {
  if (!shown_) sink.name(*name_);
  if (shown_ < arguments_.size() || arguments_.empty())
    sink.arguments(arguments_.empty() ? "{}" : std::string_view(arguments_).substr(shown_));
  sink.done();
}

// Shows the arguments so far, but not the brace alone: its next character may already be wrong.
void JsonCall::stream(CallSink& sink) {
  const size_t have = text_.size() - begin_;
  if (have < 2) return;
  if (!shown_) sink.name(*name_);
  sink.arguments(std::string_view(text_).substr(begin_ + shown_, have - shown_));
  shown_ = have;
}

bool JsonCall::end_member(CallSink& sink) {
  const bool beyond = !(text_.back() == '"' || text_.back() == '}' || text_.back() == ']') || scanner_.depth() == 0;
  const std::string value = trimmed_text(std::string_view(text_).substr(begin_, text_.size() - begin_ - beyond));
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

JsonScanner::Status NamedArguments::put(char c, CallSink& sink) {
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

std::string_view MarkerReader::put(char c, std::initializer_list<std::string_view> words, bool& wrong) {
  if (text_.empty() && is_blank(c)) return {};
  text_ += c;
  wrong = true;
  for (const std::string_view word : words) {
    if (text_ == word) return text_.clear(), wrong = false, word;
    if (word.starts_with(text_)) wrong = false;
  }
  return {};
}

}  // namespace apus
