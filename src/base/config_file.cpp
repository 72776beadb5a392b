// SPDX-License-Identifier: Apache-2.0
#include "base/config_file.h"

#include <yaml-cpp/yaml.h>

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/files.h"

namespace apus {

namespace {

constexpr int64_t kMaxBytes = 4 << 20;
constexpr int kMaxDepth = 64, kMaxNodes = 100'000;  // YAML's aliases can make a small file enormous, or endless

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// What a plain YAML scalar means, by the rules of YAML 1.1 that people's files rely on (yes, off, ~).
Json typed_scalar(const std::string& text) {
  const std::string small = text.size() <= 5 ? lower(text) : std::string();
  if (text.empty() || text == "~" || small == "null") return nullptr;
  if (small == "true" || small == "yes" || small == "on") return true;
  if (small == "false" || small == "no" || small == "off") return false;
  const char* first = text.data();
  const char* last = first + text.size();
  if (*first == '+' && text.size() > 1) ++first;
  int64_t whole = 0;
  if (auto [end, code] = std::from_chars(first, last, whole); code == std::errc() && end == last) return whole;
  const bool numeric = std::isdigit(static_cast<unsigned char>(*first)) || *first == '-' || *first == '.';
  double real = 0;
  if (auto [end, code] = std::from_chars(first, last, real); numeric && code == std::errc() && end == last) return real;
  return text;
}

class YamlReader {
 public:
  explicit YamlReader(const std::string& path) : path_(path) {}

  Json value(const YAML::Node& node, int depth = 0) {
    require(depth <= kMaxDepth && ++nodes_ <= kMaxNodes, Fault::Usage, path_,
            ": nested too deep or too large (aliases?)");
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        return node.Tag() == "!" ? Json(node.Scalar()) : typed_scalar(node.Scalar());
      case YAML::NodeType::Sequence: {
        Json list = Json::array();
        for (const auto& item : node) list.push_back(value(item, depth + 1));
        return list;
      }
      case YAML::NodeType::Map: {
        Json object = Json::object();
        for (const auto& item : node) {
          require(item.first.IsScalar(), Fault::Usage, path_, ": a key of a mapping must be a word");
          object[item.first.Scalar()] = value(item.second, depth + 1);
        }
        return object;
      }
      default:
        return nullptr;
    }
  }

 private:
  const std::string& path_;
  int nodes_ = 0;
};

std::string word_of(const Json& value) { return value.is_string() ? value.get<std::string>() : json_text(value); }

std::vector<std::string> words_of(const Json& value) {
  std::vector<std::string> words;
  if (!value.is_array()) return {word_of(value)};
  for (const auto& item : value) words.push_back(word_of(item));
  return words;
}

std::vector<std::string> words_of(const YAML::Node& node, const Json& value) {
  if (node.IsScalar()) return {node.Scalar()};
  if (!node.IsSequence()) return words_of(value);
  std::vector<std::string> words;
  size_t index = 0;
  for (const auto& item : node) {
    words.push_back(item.IsScalar() ? item.Scalar() : word_of(value[index]));
    ++index;
  }
  return words;
}

void add(ConfigFile& config, std::set<std::string>& seen, ConfigEntry entry, const std::string& path) {
  require(seen.insert(entry.key).second, Fault::Usage, path, ": the key '", entry.key, "' stands there twice");
  if (entry.key != "ENV") {
    if (!entry.value.is_null()) config.entries.push_back(std::move(entry));
    return;
  }
  require(entry.value.is_object() || entry.value.is_null(), Fault::Usage, path,
          ": ENV must be a mapping of names to values");
  for (const auto& [name, value] : entry.value.items()) {
    require(!name.empty() && name.find('=') == std::string::npos && name.find('\0') == std::string::npos, Fault::Usage,
            path, ": ENV: '", name, "' cannot name an environment variable");
    if (!value.is_null()) config.environment.emplace_back(name, word_of(value));
  }
}

ConfigFile from_yaml(const std::string& text, const std::string& path) {
  ConfigFile config;
  std::set<std::string> seen;
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root || root.IsNull()) return config;
    require(root.IsMap(), Fault::Usage, path, ": a mapping of option names to values is needed");
    YamlReader reader(path);
    for (const auto& item : root) {
      require(item.first.IsScalar(), Fault::Usage, path, ": a key must be the name of an option");
      ConfigEntry entry{item.first.Scalar(), reader.value(item.second), {}};
      if (entry.key == "ENV" && item.second.IsMap()) {  // variables as they were written: "0123" and "yes" stay so
        for (const auto& variable : item.second) {
          if (variable.second.IsScalar() && !entry.value[variable.first.Scalar()].is_null()) {
            entry.value[variable.first.Scalar()] = variable.second.Scalar();
          }
        }
      }
      entry.words = words_of(item.second, entry.value);
      add(config, seen, std::move(entry), path);
    }
  } catch (const YAML::Exception& error) {
    fail(Fault::Usage, path, ":", error.mark.line + 1, ":", error.mark.column + 1, ": not valid YAML: ", error.msg);
  }
  return config;
}

}  // namespace

namespace {

bool names_variable(char c, bool first) {
  return c == '_' ||
         (first ? std::isalpha(static_cast<unsigned char>(c)) : std::isalnum(static_cast<unsigned char>(c)));
}

std::string filled_in(const std::string& text, const ConfigEntry& entry, const std::string& path) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '$' || at + 1 == text.size()) {
      out += text[at++];
      continue;
    }
    if (text[at + 1] == '$') {
      out += '$', at += 2;
      continue;
    }
    const bool braced = text[at + 1] == '{';
    const size_t begin = at + 1 + braced;
    size_t end = begin;
    while (end < text.size() && names_variable(text[end], end == begin)) ++end;
    const std::string name = text.substr(begin, end - begin);
    if (name.empty() || (braced && (end == text.size() || text[end] != '}'))) {
      out += text[at++];
      continue;
    }
    const char* const value = std::getenv(name.c_str());
    require(value || !braced, Fault::Usage, path, ": ", entry.key, ": the environment has no variable ", name);
    out += value ? value : text.substr(at, end - at);
    at = end + braced;
  }
  return out;
}

void fill_in(Json& value, const ConfigEntry& entry, const std::string& path) {
  if (value.is_string()) value = filled_in(value.get<std::string>(), entry, path);
  if (value.is_structured())
    for (auto& inner : value) fill_in(inner, entry, path);
}

}  // namespace

void fill_in_environment(ConfigEntry& entry, const std::string& path) {
  for (std::string& word : entry.words) word = filled_in(word, entry, path);
  fill_in(entry.value, entry, path);
}

bool names_config_file(const std::string& argument) {
  if (argument.starts_with("-")) return false;
  return argument.ends_with(".json") || argument.ends_with(".yaml") || argument.ends_with(".yml");
}

ConfigFile parse_config(const std::string& text, bool yaml, const std::string& path) {
  if (yaml) return from_yaml(text, path);
  const Json root = parse_json(text, path, Fault::Usage, kMaxDepth);
  require(root.is_object(), Fault::Usage, path, ": an object of option names and values is needed");
  ConfigFile config;
  std::set<std::string> seen;
  for (const auto& [key, value] : root.items()) add(config, seen, {key, value, words_of(value)}, path);
  return config;
}

ConfigFile read_config_file(const std::string& path) {
  return parse_config(read_file(path, kMaxBytes), !path.ends_with(".json"), path);
}

}  // namespace apus
