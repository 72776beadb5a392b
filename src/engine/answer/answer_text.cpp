// SPDX-License-Identifier: Apache-2.0
#include "engine/answer/answer_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace apus {

std::string StopStrings::push(const std::string& text) {
  if (found_) return {};
  held_ += text;
  // The one that is complete first, whichever pieces the text comes in; of two that end together the longer.
  size_t begin = 0, end = std::string::npos;
  for (const auto& stop : stops_) {
    const size_t i = stop.empty() ? std::string::npos : held_.find(stop);
    if (i == std::string::npos || i + stop.size() > end || (i + stop.size() == end && i > begin)) continue;
    begin = i;
    end = i + stop.size();
  }
  if (end != std::string::npos) {
    found_ = true;
    which_ = held_.substr(begin, end - begin);
    held_.resize(keep_ ? end : begin);
    return std::exchange(held_, {});
  }
  size_t keep = 0;  // the longest end that begins a stop string
  for (const auto& stop : stops_)
    for (size_t n = std::min(held_.size(), stop.empty() ? 0 : stop.size() - 1); n > keep; --n)
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) keep = n;
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

std::string StopStrings::flush() { return found_ ? std::string() : std::exchange(held_, {}); }

std::string AnswerText::push(const EngineEvent& event) {
  if (finish_ != Finish::None) return {};
  std::string shown;
  for (const auto& token : event.tokens) {
    tokens_.push_back(token);
    const bool ends = event.finish == Finish::Stop && &token == &event.tokens.back() &&
                      std::find(spec_.stop_ids.begin(), spec_.stop_ids.end(), token.id) != spec_.stop_ids.end();
    const bool early = static_cast<int64_t>(tokens_.size()) < spec_.min_tokens;
    if (!ends) shown += early ? decoder_.push(token.id) : stops_.push(decoder_.push(token.id));
    if (stops_.found()) break;
  }
  if (event.finish != Finish::None && !stops_.found()) {
    shown += stops_.push(decoder_.flush());
    shown += stops_.flush();
  }
  finish_ = stops_.found() ? Finish::Stop : event.finish;
  error_ = event.error;
  text_ += shown;
  return shown;
}

namespace {
Json token_json(const Tokenizer& tokenizer, int32_t id, float logprob) {
  const std::string bytes = tokenizer.token_bytes(id);
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return {{"token", bytes}, {"logprob", logprob}, {"bytes", std::move(list)}};
}
}  // namespace

Json logprobs_json(const Tokenizer& tokenizer, const std::vector<TokenOut>& tokens, int64_t top) {
  Json content = Json::array();
  for (const auto& t : tokens) {
    Json entry = token_json(tokenizer, t.id, t.logprob);
    Json& list = entry["top_logprobs"] = Json::array();
    for (const auto& [id, logprob] : t.top)
      if (static_cast<int64_t>(list.size()) < top) list.push_back(token_json(tokenizer, id, logprob));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

const char* finish_name(Finish finish) {
  switch (finish) {
    case Finish::Stop:
      return "stop";
    case Finish::Length:
      return "length";
    case Finish::Cancelled:
      return "cancelled";
    case Finish::Failed:
      return "error";
    case Finish::None:
      break;
  }
  return "";
}

}  // namespace apus
