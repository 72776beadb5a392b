// SPDX-License-Identifier: Apache-2.0
// Is the call of a tool that an answer ends with ("Action: ... Action Input: ...") the one of the row's column
// "solution"? The same tool, and the same input: equal as JSON, or as words where neither is JSON.
#include <algorithm>
#include <sstream>
#include <vector>

#include "reward/reward.h"

namespace apus {
namespace {

constexpr const char* kAction = "Action:";
constexpr const char* kInput = "Action Input:";
constexpr const char* kObservation = "Observation:";
constexpr double kAlike = 0.2;  // share of the longest common sequence of words

struct ToolUse {
  std::string name = "none", input = "{}";
};

std::string without_ends(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

// The last call of the text.
ToolUse tool_use_in(const std::string& text) {
  ToolUse use;
  const size_t input = text.rfind(kInput), action = text.rfind(kAction);
  if (input != std::string::npos) use.input = without_ends(text.substr(input + std::string(kInput).size()));
  if (action != std::string::npos) {
    const std::string name = text.substr(action + std::string(kAction).size());
    use.name = without_ends(name.substr(0, name.find(kInput)));
  }
  return use;
}

// A model that is stopped where the tool's answer would stand.
std::string said_before_observation(const std::string& text) {
  std::string said = without_ends(text);
  if (said.ends_with(kObservation)) said = without_ends(said.substr(0, said.find(kObservation)));
  for (const std::string end : {"<|endoftext|>", "<|im_end|>"})
    for (size_t at = said.find(end); at != std::string::npos; at = said.find(end)) said.erase(at, end.size());
  return said;
}

std::vector<std::string> answer_words(std::string text) {
  std::replace(text.begin(), text.end(), '.', ' ');
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// ROUGE-L: twice the longest common sequence of words over all words.
double rouge_l(const std::string& left, const std::string& right) {
  const std::vector<std::string> a = answer_words(left), b = answer_words(right);
  if (a.empty() || b.empty()) return 0;
  std::vector<size_t> longest(b.size() + 1, 0);  // for the words of `a` so far, and each beginning of `b`
  for (const std::string& word : a) {
    size_t diagonal = 0;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = longest[j];
      longest[j] = word == b[j - 1] ? diagonal + 1 : std::max(above, longest[j - 1]);
      diagonal = above;
    }
  }
  return 2.0 * static_cast<double>(longest.back()) / static_cast<double>(a.size() + b.size());
}

bool same_input(const std::string& said, const std::string& wanted) {
  const Json left = Json::parse(said, nullptr, false), right = Json::parse(wanted, nullptr, false);
  if (left.is_discarded() != right.is_discarded()) return false;
  if (left.is_discarded()) return rouge_l(said, wanted) >= kAlike;
  if (!left.is_object() || !right.is_object() || left.size() != right.size()) return false;
  return std::all_of(right.items().begin(), right.items().end(),
                     [&](const auto& item) { return left.contains(item.key()) && left[item.key()] == item.value(); });
}

class Toolbench final : public SingleReward {
 public:
  explicit Toolbench(const RewardOptions&) {}
  double one(const RewardInput& answer) const override {
    const auto solution = answer.row ? answer.row->find("solution") : Json::const_iterator();
    require(answer.row && solution != answer.row->end() && solution->is_string(), Fault::Data,
            "the reward toolbench compares calls with those of the column 'solution', a text with \"Action: ... Action "
            "Input: ...\", and the row has none");
    const ToolUse said = tool_use_in(said_before_observation(answer.completion));
    const ToolUse wanted = tool_use_in(solution->get<std::string>());
    return said.name == wanted.name && same_input(said.input, wanted.input) ? 1 : 0;
  }
};

const RegisterReward<Toolbench> toolbench("toolbench");

}  // namespace
}  // namespace apus
