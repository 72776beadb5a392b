// SPDX-License-Identifier: Apache-2.0
#include "text/harmony_reader.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace apus {

namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>";
constexpr std::array<std::string_view, 4> kEnds = {"<|end|>", kHarmonyCallEnd, "<|return|>", kStart};
constexpr size_t kLongestHead = 500;  // bytes

// Could `text` be a head, or the beginning of one?
bool may_be_head(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \n"), text.size()));
  for (const std::string_view first : {kStart, kChannel, kMessage, std::string_view("to=")})
    if (text.starts_with(first) || first.starts_with(text)) return true;
  return false;
}

// The word behind `mark`, up to a blank or another mark.
std::string_view word_behind(std::string_view head, std::string_view mark) {
  const size_t at = head.find(mark);
  if (at == std::string_view::npos) return {};
  head.remove_prefix(at + mark.size());
  return head.substr(0, head.find_first_of(" \n<"));
}

// Bytes at the end of `text` that may begin one of the ends.
size_t open_end(std::string_view text) {
  const size_t at = text.rfind('<');
  if (at == std::string_view::npos) return 0;
  const std::string_view tail = text.substr(at);
  return std::any_of(kEnds.begin(), kEnds.end(), [&](std::string_view end) { return end.starts_with(tail); })
             ? tail.size()
             : 0;
}

}  // namespace

std::vector<ChatDelta> HarmonyReader::feed(std::string_view text) {
  pending_ += text;
  run(false);
  return std::exchange(out_, {});
}

std::vector<ChatDelta> HarmonyReader::finish() {
  run(true);
  if (in_body_) end_message();
  return std::exchange(out_, {});
}

void HarmonyReader::run(bool end) {
  while (in_body_ ? body(end) : head(end)) {}
}

bool HarmonyReader::head(bool end) {
  if (pending_.empty()) return false;
  const size_t at = pending_.find(kMessage);
  const bool is_head = may_be_head(pending_) && std::min(at, pending_.size()) <= kLongestHead;
  if (!is_head) return begin_plain(), true;
  if (at == std::string::npos) {
    if (end) pending_.clear();  // a head without a message says nothing
    return false;
  }
  begin(std::string_view(pending_).substr(0, at));
  pending_.erase(0, at + kMessage.size());
  return true;
}

// Text without a head, of a model that was not taught the form.
void HarmonyReader::begin_plain() {
  kind_ = Kind::Content;
  in_body_ = fresh_ = true;
}

void HarmonyReader::begin(std::string_view head) {
  const std::string_view channel = word_behind(head, kChannel);
  std::string_view to = word_behind(head, " to=");
  if (to.empty() && head.starts_with("to=")) to = word_behind(head, "to=");
  begin_plain();
  if (to.starts_with("functions.")) to.remove_prefix(10);
  if (!to.empty() && is_tool(to)) {
    kind_ = Kind::Call;
    function_ = to;
    call_.emplace(function_);
    call_text_.clear();
    call_shown_ = call_done_ = false;
  } else if (channel == "analysis") {
    kind_ = Kind::Thought;
  }
}

bool HarmonyReader::is_tool(std::string_view name) const {
  if (!options_.tools || !options_.tools->is_array()) return false;
  return std::any_of(options_.tools->begin(), options_.tools->end(), [&](const Json& tool) {
    if (!tool.is_object()) return false;
    const Json& function = tool.contains("function") ? tool["function"] : tool;
    return function.is_object() && function.contains("name") && function["name"] == name;
  });
}

bool HarmonyReader::body(bool end) {
  size_t at = std::string::npos;
  std::string_view which;
  for (const std::string_view mark : kEnds)
    if (const size_t found = pending_.find(mark); found < at) at = found, which = mark;
  const bool closed = at != std::string::npos;
  const size_t sure = closed ? at : end ? pending_.size() : pending_.size() - open_end(pending_);
  const std::string text = pending_.substr(0, sure);
  pending_.erase(0, sure);
  if (kind_ == Kind::Call)
    call(text);
  else
    say(text);
  if (!closed) return false;
  if (which != kStart) pending_.erase(0, which.size());  // the next head begins with its start
  end_message();
  return true;
}

// Text of a message that is no call. Several messages of one kind are kept apart by a line's end.
void HarmonyReader::say(std::string_view text) {
  if (text.empty()) return;
  const bool thought = kind_ == Kind::Thought && options_.reasoning;
  bool& before = thought ? thought_ : spoke_;
  std::string shown(fresh_ && before ? "\n" : "");
  shown += text;
  fresh_ = false;
  before = true;
  const auto kind = thought ? ChatDelta::Kind::Reasoning : ChatDelta::Kind::Content;
  if (!out_.empty() && out_.back().kind == kind)
    out_.back().text += shown;
  else
    out_.push_back({kind, std::move(shown), -1});
}

void HarmonyReader::call(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (call_done_ && is_blank(text[i])) continue;
    call_text_ += text[i];
    const bool good = !call_done_ && call_->put(text[i], *this) != JsonScanner::Status::Bad;
    if (good) continue;
    if (call_done_ || call_shown_) call_text_ = text[i];  // what came before is out as a call
    give_up_call();
    return say(text.substr(i + 1));
  }
}

// What is no call, or not all of it, is content.
void HarmonyReader::give_up_call() {
  if (!held_.empty()) --calls_, held_.clear();
  kind_ = Kind::Content;
  say(std::exchange(call_text_, {}));
}

void HarmonyReader::end_message() {
  if (kind_ == Kind::Call && !call_done_) {
    if (!call_->begun() && call_text_.find_first_not_of(" \n\t\r") == std::string::npos) {
      name(function_);
      arguments("{}");
      done();
    } else if (!call_shown_) {
      give_up_call();
    }
  }
  call_.reset();
  in_body_ = false;
}

void HarmonyReader::name(std::string_view text) {
  ++calls_;
  (options_.whole_calls ? held_ : out_).push_back({ChatDelta::Kind::ToolName, std::string(text), calls_});
  call_shown_ = !options_.whole_calls;
}

void HarmonyReader::arguments(std::string_view json_part) {
  auto& list = options_.whole_calls ? held_ : out_;
  const bool goes_on =
      !list.empty() && list.back().kind == ChatDelta::Kind::ToolArguments && list.back().call == calls_;
  if (goes_on)
    list.back().text += json_part;
  else
    list.push_back({ChatDelta::Kind::ToolArguments, std::string(json_part), calls_});
}

void HarmonyReader::done() {
  std::move(held_.begin(), held_.end(), std::back_inserter(out_));
  held_.clear();
  call_done_ = call_shown_ = true;
}

}  // namespace apus
