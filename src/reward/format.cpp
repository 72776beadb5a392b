// SPDX-License-Identifier: Apache-2.0
// Rewards of the form of an answer: 1 or 0.
#include <optional>
#include <string_view>

#include "reward/reward.h"

namespace apus {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Cuts `mark` off the front. False: it does not stand there.
bool cut_front(std::string_view& text, std::string_view mark) {
  if (text.substr(0, mark.size()) != mark) return false;
  text.remove_prefix(mark.size());
  return true;
}

// Cuts everything up to the first `mark` and the mark itself.
bool cut_through(std::string_view& text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return false;
  text.remove_prefix(at + mark.size());
  return true;
}

void cut_spaces(std::string_view& text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
}

// Behind "<think>...</think>", spaces and `mark`, wherever they first stand in this order; nothing: nowhere.
std::optional<std::string_view> behind_thoughts(std::string_view text, std::string_view mark) {
  if (!cut_front(text, "<think>")) return std::nullopt;
  while (cut_through(text, "</think>")) {
    std::string_view rest = text;
    cut_spaces(rest);
    if (cut_front(rest, mark)) return rest;
  }
  return std::nullopt;
}

// <think>...</think> <answer>...</answer> and nothing else.
class ThinkAnswerForm final : public SingleReward {
 public:
  explicit ThinkAnswerForm(const RewardOptions&) {}
  double one(const RewardInput& answer) const override {
    const auto rest = behind_thoughts(answer.completion, "<answer>");
    return rest && rest->ends_with("</answer>") ? 1 : 0;
  }
};

// <think>...</think> Action: ... Action Input: ...
class ReactForm final : public SingleReward {
 public:
  explicit ReactForm(const RewardOptions&) {}
  double one(const RewardInput& answer) const override {
    const auto rest = behind_thoughts(answer.completion, "Action:");
    return rest && rest->find("Action Input:") != std::string_view::npos ? 1 : 0;
  }
};

const RegisterReward<ThinkAnswerForm> format_reward("format");
const RegisterReward<ReactForm> react_format_reward("react_format");

}  // namespace
}  // namespace apus
