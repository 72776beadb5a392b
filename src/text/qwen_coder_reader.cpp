// SPDX-License-Identifier: Apache-2.0
// Reading Qwen3-Coder's calls; each parameter becomes one member of the arguments.
#include "text/qwen_coder_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/json_scanner.h"

namespace apus {

namespace {

using Status = CallReader::Status;

constexpr size_t kLongestName = 500;
constexpr std::string_view kFunction = "<function=", kParameter = "<parameter=", kEndParameter = "</parameter>",
                           kEndFunction = "</function>";

const Json* member(const Json* json, const std::string& name) {
  if (!json || !json->is_object()) return nullptr;
  const auto it = json->find(name);
  return it == json->end() ? nullptr : &*it;
}

// The schema of a function's parameter; null: not known.
const Json* schema_of(const Json* tools, const std::string& function_name, const std::string& key) {
  if (!tools || !tools->is_array()) return nullptr;
  for (const Json& tool : *tools) {
    const Json* function = member(&tool, "function") ? member(&tool, "function") : &tool;
    const Json* name = member(function, "name");
    if (name && *name == function_name) return member(member(member(function, "parameters"), "properties"), key);
  }
  return nullptr;
}

}  // namespace

std::string as_json_string(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_argument(std::string_view value, const Json* tools, const std::string& function,
                          const std::string& key) {
  const Json* wanted = member(schema_of(tools, function, key), "type");
  const auto wants = [&](const char* type) {
    if (!wanted) return false;
    return *wanted == type || (wanted->is_array() && std::find(wanted->begin(), wanted->end(), type) != wanted->end());
  };
  if (value == "null" && (!wanted || !wants("string") || wants("null"))) return "null";
  if (wants("string")) return as_json_string(value);
  if (value == "True" || value == "False") return value == "True" ? "true" : "false";
  const Json parsed = Json::parse(value, nullptr, false);
  if (parsed.is_discarded()) return as_json_string(value);
  std::string text(value);
  return text;
}

Status QwenCoderReader::put(char c, CallSink& sink) {
  if (text_.empty() && is_blank(c) && place_ != Place::Value) return Status::More;
  text_ += c;
  const auto spells = [&](std::string_view word) { return word.starts_with(text_); };
  switch (place_) {
    case Place::Start:
      if (!spells(kFunction)) return Status::Bad;
      if (text_ == kFunction) place_ = Place::Name, text_.clear();
      return Status::More;
    case Place::Name:
    case Place::Key: {
      if (c != '>') return text_.size() < kLongestName ? Status::More : Status::Bad;
      text_.pop_back();
      const bool name = place_ == Place::Name;
      if (text_.empty() || text_.find_first_of("<\n") != std::string::npos) return Status::Bad;
      (name ? function_ : key_) = std::exchange(text_, {});
      place_ = name ? Place::Between : Place::Value;
      if (name) any_ = false;
      return Status::More;
    }
    case Place::Between:
      if (text_ == kParameter) {
        place_ = Place::Key;
        text_.clear();
      } else if (text_ == kEndFunction) {
        if (!any_) sink.name(function_);
        sink.arguments(any_ ? "}" : "{}");
        sink.done();
        text_.clear();
        finished_ = true;
        place_ = Place::End;
        if (!wrapped_) return Status::Closed;
      } else if (!spells(kParameter) && !spells(kEndFunction)) {
        return Status::Bad;
      }
      return Status::More;
    case Place::Value:
      return text_.ends_with(kEndParameter) ? put_parameter(sink) : Status::More;
    case Place::End:
      if (text_ == end_call_) return Status::Closed;
      return spells(end_call_) ? Status::More : Status::Outside;
  }
  return Status::Bad;
}

Status QwenCoderReader::put_parameter(CallSink& sink) {
  std::string_view value = std::string_view(text_).substr(0, text_.size() - kEndParameter.size());
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  if (!any_) sink.name(function_);
  sink.arguments((any_ ? ", " : "{") + as_json_string(key_) + ": " + json_argument(value, tools_, function_, key_));
  any_ = true;
  text_.clear();
  place_ = Place::Between;
  return Status::More;
}

Status QwenCoderReader::finish(CallSink&) { return finished_ ? Status::Closed : Status::Bad; }

}  // namespace apus
