// SPDX-License-Identifier: Apache-2.0
#include "base/foreign_words.h"

#include <algorithm>
#include <sstream>

#include "base/assets.h"
#include "base/json.h"

namespace apus {

namespace {

const Json& words_of(const char* kind) {
  static const Json all = parse_json(asset("knowledge/words.json"), "assets/knowledge/words.json", Fault::Bug);
  return all.at(kind);
}

bool has_word(const Json& entry, const std::string& typed) {
  const Json& words = entry.at("words");
  return std::find(words.begin(), words.end(), typed) != words.end();
}

// All options that an advice names are there.
bool holds(const std::string& use, const std::function<bool(const std::string&)>& is_option) {
  std::istringstream in(use);
  for (std::string word; in >> word;) {
    if (word == "apus") return true;  // of another command
    word.resize(
        std::min(word.size(), word.find_first_not_of("abcdefghijklmnopqrstuvwxyz_-")));  // "--model's", "--beta;"
    if (word.starts_with("--") && !is_option(word.substr(2))) return false;
  }
  return true;
}

}  // namespace

std::string option_of_foreign_word(const std::string& typed, const std::function<bool(const std::string&)>& is_option) {
  for (const Json& entry : words_of("options"))
    if (const std::string use = entry.at("use"); has_word(entry, typed) && holds(use, is_option)) return use;
  return "";
}

std::string option_of_foreign_value(const std::string& option, const std::string& value) {
  for (const Json& entry : words_of("values"))
    if (entry.at("option") == option && has_word(entry, value)) return entry.at("use");
  return "";
}

std::string command_of_foreign_word(const std::string& typed) {
  for (const Json& entry : words_of("commands"))
    if (has_word(entry, typed)) {
      std::string use = entry.at("use");
      if (const size_t at = use.find("WORD"); at != std::string::npos) use.replace(at, 4, typed);
      return use;
    }
  return "";
}

}  // namespace apus
