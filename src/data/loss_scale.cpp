// SPDX-License-Identifier: Apache-2.0
#include "data/loss_scale.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"

namespace apus {

namespace {

// The tables known by name. Two numbers: of a word and of what follows it until the next word. One: of a pattern's
// match.
const std::map<std::string, const char*>& known_tables() {
  static const std::map<std::string, const char*> tables = {
      {"ignore_empty_think", R"({"<think>\\s*</think>\\s*": [0]})"},
      {"ignore_think_prefix", R"({"^<think>\\s*(</think>\\s*)?": [0]})"},
      {"hermes", R"({"(?s)<tool_call>.+?</tool_call>": [2]})"},
      {"react",
       R"({"Action:": [2, 2], "Action Input:": [2, 2], "Thought:": [1, 1], "Final Answer:": [1, 1], "Observation:": [2, 0]})"},
      {"qwen", R"({"✿FUNCTION✿:": [2, 2], "✿ARGS✿:": [2, 2], "✿RETURN✿:": [1, 1], "✿RESULT✿:": [2, 0]})"},
  };
  return tables;
}

std::string escaped(const std::string& word) {
  std::string out;
  for (const char c : word) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

LossScale LossScale::parse(const std::string& text) {
  LossScale scale;
  static const std::map<std::string, LossBase> bases = {
      {"default", LossBase::Default}, {"last_round", LossBase::LastRound}, {"all", LossBase::All}};
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    const auto base = bases.find(name);
    if (base != bases.end() && begin == 0) {
      scale.base_ = base->second;
    } else if (const auto table = known_tables().find(name); table != known_tables().end()) {
      scale.add_table(Json::parse(table->second), name);
    } else if (std::filesystem::is_regular_file(name)) {
      scale.add_table(parse_json(read_file(name), "--loss_scale " + name, Fault::Usage), name);
    } else {
      std::string known;
      for (const auto& [table_name, value] : known_tables()) known += ", " + table_name;
      fail(Fault::Usage, "--loss_scale ", text, ": '", name,
           "' is not known. Known are default, last_round or all at the beginning", known,
           ", and the path of a JSON file of {\"word\": [weight, weight of what follows]} or {\"pattern\": [weight]}; "
           "join them with +");
    }
    begin = end + 1;
  }
  return scale;
}

void LossScale::add_table(const Json& json, const std::string& name) {
  const std::string where = "--loss_scale " + name;
  require(json.is_object() && !json.empty(), Fault::Usage, where, ": an object of words and weights is wanted");
  Table table{json.begin()->size() == 2, {}};
  for (const auto& [word, value] : json.items()) {
    const bool numbers = value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& n) {
                           return n.is_number() && n.get<double>() >= 0;
                         });
    require(numbers && !word.empty() && value.size() == (table.literal ? 2u : 1u), Fault::Usage, where, ": '", word,
            "' must have ",
            table.literal ? "two weights (of the word, of what follows)" : "one weight (of what the pattern matches)",
            ", all of the table alike");
    const auto weight = value[0].get<float>(), following = value.back().get<float>();
    binary_ = binary_ && (weight == 0 || weight == 1) && (following == 0 || following == 1);
    table.entries.push_back({word, Regex(table.literal ? escaped(word) : word, where), weight, following});
  }
  tables_.push_back(std::move(table));
}

void LossScale::apply(const Table& table, std::string_view answer, std::vector<float>& weights) {
  float following = 1;
  for (size_t at = 0; at < answer.size();) {
    const Entry* first = nullptr;
    std::pair<size_t, size_t> found{answer.size(), answer.size()};
    for (const Entry& entry : table.entries) {
      const auto match = entry.pattern.find(answer, at);
      if (!match || match->second == match->first) continue;
      const bool earlier =
          match->first < found.first || (match->first == found.first && first && match->second > found.second);
      if (earlier) first = &entry, found = *match;
    }
    for (size_t i = at; i < found.first; ++i) weights[i] *= following;
    for (size_t i = found.first; i < found.second; ++i) weights[i] *= first->weight;
    if (table.literal && first) following = first->following;
    at = first ? found.second : answer.size();
  }
}

std::vector<LossScale::Stretch> LossScale::stretches(std::string_view answer) const {
  std::vector<float> weights(answer.size(), 1.0f);
  for (const Table& table : tables_) apply(table, answer, weights);
  std::vector<Stretch> out;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (out.empty() || out.back().weight != weights[i]) out.push_back({i, i, weights[i]});
    out.back().end = i + 1;
  }
  return out;
}

}  // namespace apus
