// SPDX-License-Identifier: Apache-2.0
#include "data/encode/loss_scale.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "data/encode/loss_scale_tables.h"

namespace apus {

namespace {

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
    } else if (const auto table = loss_scale_tables().find(name); table != loss_scale_tables().end()) {
      scale.add_table(Json::parse(table->second), name);
    } else if (std::filesystem::is_regular_file(name)) {
      scale.add_table(parse_json(read_file(name), "--loss_scale " + name, Fault::Usage), name);
    } else {
      std::string known;
      for (const auto& [table_name, value] : loss_scale_tables()) known += ", " + table_name;
      fail(Fault::Usage, "--loss_scale ", text, ": '", name,
           "' is not known. Known are default, last_round or all at the beginning", known,
           ", and the path of a JSON file of {\"word\": [weight, weight of what follows]} or {\"pattern\": [weight]}; "
           "join them with +");
    }
    begin = end + 1;
  }
  return scale;
}

std::vector<LossScale::Entry> LossScale::entries_of(const Json& words, bool literal, const std::string& where) {
  std::vector<Entry> entries;
  for (const auto& [word, value] : words.items()) {
    const bool numbers = value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& n) {
                           return n.is_number() && n.get<double>() >= 0;
                         });
    require(numbers && !word.empty() && value.size() == (literal ? 2u : 1u), Fault::Usage, where, ": '", word,
            "' must have ",
            literal ? "two weights (of the word, of what follows)" : "one weight (of what the pattern matches)",
            ", all of the table alike");
    entries.push_back(
        {word, Regex(literal ? escaped(word) : word, where), value[0].get<float>(), value.back().get<float>()});
  }
  return entries;
}

void LossScale::add_table(const Json& json, const std::string& name) {
  const std::string where = "--loss_scale " + name;
  require(json.is_object() && !json.empty(), Fault::Usage, where, ": an object of words and weights is wanted");
  const bool by_question = json.contains("query") && json["query"].is_object();
  const Json& words = by_question && json.contains("response") ? json["response"] : json;
  require(words.is_object() && !words.empty() && (!by_question || json.size() == 2), Fault::Usage, where,
          ": beside \"query\" an object \"response\" of words and weights is wanted, and nothing else");
  Table table{words.begin()->size() == 2, {}, {}};
  table.entries = entries_of(words, table.literal, where);
  if (by_question)
    for (const auto& [text, value] : json["query"].items()) {
      const Json& weight = value.is_array() && value.size() == 1 ? value[0] : value;
      require(weight.is_number() && weight.get<double>() >= 0 && !text.empty(), Fault::Usage, where, ": query '", text,
              "' must have one weight");
      table.questions.emplace_back(text, weight.get<float>());
    }
  const auto whole = [](float weight) { return weight == 0 || weight == 1; };
  for (const Entry& entry : table.entries) binary_ = binary_ && whole(entry.weight) && whole(entry.following);
  for (const auto& [text, weight] : table.questions) binary_ = binary_ && whole(weight);
  tables_.push_back(std::move(table));
}

std::vector<LossScale::Stretch> LossScale::parts(const Table& table, std::string_view text, std::string_view question) {
  std::vector<Stretch> out;
  const auto add = [&](size_t begin, size_t end, float weight) {
    if (begin < end) out.push_back({begin, end, weight});
  };
  for (const auto& [asked, weight] : table.questions)
    if (question.find(asked) != std::string_view::npos) return {{0, text.size(), weight}};
  float following = 1;
  for (size_t at = 0; at < text.size();) {
    const Entry* first = nullptr;
    std::pair<size_t, size_t> found{text.size(), text.size()};
    for (const Entry& entry : table.entries) {
      const auto match = entry.pattern.find(text, at);
      if (!match || match->second == match->first) continue;
      const bool earlier =
          match->first < found.first || (match->first == found.first && first && match->second > found.second);
      if (earlier) first = &entry, found = *match;
    }
    add(at, found.first, following);
    if (first) add(found.first, found.second, first->weight);
    if (table.literal && first) following = first->following;
    at = first ? found.second : text.size();
  }
  return out;
}

// Each table reads the stretches of the one before it, one by one: "the beginning" is that of a stretch.
std::vector<LossScale::Stretch> LossScale::stretches(std::string_view answer, std::string_view question) const {
  std::vector<Stretch> whole;
  if (!answer.empty()) whole.push_back({0, answer.size(), 1.0f});
  for (const Table& table : tables_) {
    std::vector<Stretch> finer;
    for (const Stretch& one : whole)
      for (const Stretch& part : parts(table, answer.substr(one.begin, one.end - one.begin), question))
        finer.push_back({one.begin + part.begin, one.begin + part.end, one.weight * part.weight});
    whole = std::move(finer);
  }
  std::vector<Stretch> out;
  for (const Stretch& one : whole) {
    if (out.empty() || out.back().weight != one.weight) out.push_back({one.begin, one.begin, one.weight});
    out.back().end = one.end;
  }
  return out;
}

}  // namespace apus
