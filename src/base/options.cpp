// SPDX-License-Identifier: Apache-2.0
// Describing and reading options. Values are in option_value.cpp, the help text in option_help.cpp.
#include "base/options.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/config_file.h"
#include "base/error.h"
#include "base/foreign_words.h"
#include "base/nearest.h"
#include "base/option_value.h"

namespace apus {

namespace {
// A refused option with a value that leaves everything as it is.
bool asks_for_nothing(const Option& option, const std::vector<std::string>& words) {
  if (words.size() != 1) return false;
  std::string word = words[0].substr(0, 64);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word == "false" || word == "none" || word == "null" ||
         (!option.idle_value.empty() && word == option.idle_value);
}
}  // namespace

Option& Option::required() { return is_required = true, *this; }
Option& Option::choices(std::vector<std::string> names) { return allowed = std::move(names), *this; }
Option& Option::above(double limit) { return above_limit = limit, *this; }
Option& Option::at_least(double limit) { return least = limit, *this; }
Option& Option::at_most(double limit) { return most = limit, *this; }
Option& Option::alias(std::string other, std::string note) {
  return aliases.emplace_back(std::move(other), std::move(note)), *this;
}
Option& Option::refused(std::string why) { return refusal = std::move(why), *this; }
Option& Option::idle(std::string value) { return idle_value = std::move(value), *this; }
Option& Option::forgives_unknown() { return is_forgiving = true, *this; }
Option& Option::hidden() { return is_hidden = true, *this; }
Option& Option::common() { return is_common = true, *this; }
Option& Option::shown_default(std::string text) { return default_text = std::move(text), *this; }
Option& Option::honoured(OptionTarget member, std::string explanation) {
  target = member, help = std::move(explanation);
  refusal.clear(), no_effect.clear();
  return *this;
}
Option& Option::idle_for(std::string reason) {
  refusal.clear(), target = std::monostate();
  return no_effect = std::move(reason), *this;
}
Option& Option::must_match() { return is_exact = true, *this; }
Option& Option::noted() { return is_noted = true, *this; }
Option& Option::restored(std::string kind) { return restored_kind = std::move(kind), *this; }

Option& OptionTable::add(std::string name, OptionTarget target, std::string help) {
  options_.push_back(std::make_unique<Option>(std::move(name), target, std::move(help), group_));
  return *options_.back();
}

void OptionTable::refuse(const std::vector<std::string>& names, const std::string& why, const std::string& idle) {
  for (const auto& name : names) add(name, std::monostate(), "").refused(why).idle(idle);
}

void OptionTable::no_effect(const std::vector<std::string>& names, const std::string& why) {
  for (const auto& name : names) add(name, std::monostate(), "").no_effect = why;
}

Option* OptionTable::find(const std::string& name) const {
  for (const auto& option : options_) {
    if (option->name == name) return option.get();
  }
  for (const auto& option : options_) {
    for (const auto& [spelling, note] : option->aliases) {
      if (spelling == name) return option.get();
    }
  }
  return nullptr;
}

Option& OptionTable::at(const std::string& name) {
  Option* option = find(name);
  require(option, Fault::Bug, "no option --", name, " is described");
  return *option;
}

void OptionTable::check_names() const {
  std::set<std::string> seen;
  for (const auto& option : options_) {
    require(seen.insert(option->name).second, Fault::Bug, "option --", option->name, " is described twice");
    for (const auto& [spelling, note] : option->aliases) {
      require(seen.insert(spelling).second, Fault::Bug, "option --", spelling, " is described twice");
    }
  }
}

std::string OptionTable::elsewhere(std::string name) const {
  std::replace(name.begin(), name.end(), '-', '_');
  const std::string use = option_of_foreign_word(name, [&](const std::string& other) {
    const Option* const option = find(other);
    return option && acts(*option);
  });
  if (use.empty()) return "";
  return use.starts_with("nothing:") ? "; leave it out" + use.substr(7) : "; here it is " + use;
}

Option* OptionTable::look_up(const std::string& typed, std::vector<std::string>& errors) {
  std::string name = typed.substr(0, 200);
  std::replace(name.begin(), name.end(), '-', '_');
  if (Option* exact = find(name)) {
    for (const auto& [spelling, note] : exact->aliases) {
      if (spelling == name)
        notes.push_back(str("--", name, " is read as --", exact->name, note.empty() ? "" : ": ", note));
    }
    return exact;
  }
  std::set<Option*> fitting;
  std::vector<std::string> known, names;
  for (const auto& option : options_) {
    std::vector<std::string> spellings = {option->name};
    for (const auto& [spelling, note] : option->aliases) spellings.push_back(spelling);
    for (const auto& spelling : spellings) {
      if (!option->is_hidden) known.push_back(spelling);
      if (!name.empty() && spelling.starts_with(name) && fitting.insert(option.get()).second)
        names.push_back("--" + option->name);
    }
  }
  // A beginning that is another program's word for something else is that word.
  const std::string advice = elsewhere(name);
  if (fitting.size() == 1 && (advice.empty() || advice.find(names[0]) != std::string::npos)) return *fitting.begin();
  if (!advice.empty()) {
    unknown_.push_back(str("--", typed.substr(0, 200), " is no option here", advice));
    return nullptr;
  }
  if (fitting.size() > 1) {
    if (names.size() > 8) names.resize(8), names.push_back("...");
    errors.push_back(str("--", typed, " may mean any of ", join(names)));
    return nullptr;
  }
  auto near = nearest(name, known);
  for (auto& other : near) other = "--" + other;
  unknown_.push_back(str("--", typed.substr(0, 200), " is no option here",
                         near.empty() ? "" : "; did you mean " + join(near, " or ") + "?"));
  return nullptr;
}

void OptionTable::assign(Option& option, const std::vector<std::string>& words, std::vector<std::string>& errors) {
  option.given = true;
  if (!option.refusal.empty() && asks_for_nothing(option, words)) return;
  if (!option.refusal.empty()) return errors.push_back(str("--", option.name, " is not possible: ", option.refusal));
  if (!option.no_effect.empty()) return notes.push_back(str("--", option.name, " has no effect: ", option.no_effect));
  const std::string wrong = assign_words(option, words);
  if (!wrong.empty()) errors.push_back(str("--", option.name, ": ", wrong));
}

void OptionTable::read_config(const std::string& path, std::vector<std::string>& errors) {
  const ConfigFile config = read_config_file(path);
  config_file = path;
  for (const auto& [name, value] : config.environment) {
    const char* present = std::getenv(name.c_str());
    if (present && value != present)
      notes.push_back(str("ENV ", name, "=", value, " of ", path, " is ignored: it is set to ", present));
    if (!present) ::setenv(name.c_str(), value.c_str(), 0);
  }
  for (ConfigEntry entry : config.entries) {
    fill_in_environment(entry, path);
    Option* option = look_up(entry.key, errors);
    if (!option) continue;
    const bool typed = entry.value.is_object() || std::holds_alternative<Json*>(option->target);
    if (!typed || !option->refusal.empty() || !option->no_effect.empty()) {
      assign(*option, entry.words, errors);
      continue;
    }
    option->given = true;
    const std::string wrong = assign_json(*option, entry.value);
    if (!wrong.empty()) errors.push_back(str(path, ": ", entry.key, ": ", wrong));
  }
}

void OptionTable::read_flags(const std::vector<std::string>& arguments, size_t first,
                             std::vector<std::string>& errors) {
  const auto is_flag = [&](size_t i) { return arguments[i].starts_with("--") && arguments[i].size() > 2; };
  for (size_t i = first; i < arguments.size();) {
    if (!is_flag(i)) {
      const std::string& word = arguments[i];
      const std::string known = word.starts_with("-") ? elsewhere(word.substr(1, 200)) : "";
      errors.push_back(str("'", word.substr(0, 200), "' belongs to no option", known,
                           i == 0 && known.empty() ? " (a configuration file ends in .yaml, .yml or .json)" : ""));
      ++i;
      continue;
    }
    const std::string& argument = arguments[i++];
    const size_t equals = argument.find('=');
    Option* option = look_up(argument.substr(2, equals == std::string::npos ? equals : equals - 2), errors);
    std::vector<std::string> words;
    if (equals != std::string::npos) words.push_back(argument.substr(equals + 1));
    const Arity wanted = option ? arity(*option) : Arity::Any;
    const bool many = wanted == Arity::Many || wanted == Arity::Any;
    while (i < arguments.size() && !is_flag(i) && (many ? equals == std::string::npos : words.empty()))
      words.push_back(arguments[i++]);
    if (!option) continue;
    if (words.empty() && wanted == Arity::Flag) words.push_back("true");
    if (words.empty() && wanted != Arity::Any && option->refusal.empty()) {
      option->given = true;
      errors.push_back(str("--", option->name, ": a value is missing"));
      continue;
    }
    assign(*option, words, errors);
  }
}

void OptionTable::parse(const std::vector<std::string>& arguments) {
  check_names();
  std::vector<std::string> errors;
  unknown_.clear();
  const bool configured = !arguments.empty() && names_config_file(arguments[0]);
  if (configured) read_config(arguments[0], errors);
  read_flags(arguments, configured ? 1 : 0, errors);
  const bool forgiving = std::any_of(options_.begin(), options_.end(), [](const auto& option) {
    return option->is_forgiving && value_json(*option) == Json(true);
  });
  auto& unknown_goes_to = forgiving ? notes : errors;
  unknown_goes_to.insert(unknown_goes_to.end(), unknown_.begin(), unknown_.end());
  for (const auto& option : options_) {
    if (option->is_required && !option->given) errors.push_back(str("--", option->name, " is needed: ", option->help));
  }
  if (errors.empty()) return;
  if (errors.size() == 1) fail(Fault::Usage, errors[0]);
  fail(Fault::Usage, errors.size(), " options are wrong:\n  ", join(errors, "\n  "));
}

void OptionTable::set(const std::string& name, const Json& value) {
  Option* option = find(name);
  if (!option || !option->refusal.empty()) return;
  const std::string wrong = assign_json(*option, value);
  require(wrong.empty(), Fault::Usage, name, ": ", wrong);
}

bool OptionTable::given(const std::string& name) const {
  const Option* option = find(name);
  return option && option->given;
}

std::vector<const Option*> OptionTable::with(bool Option::*property) const {
  std::vector<const Option*> found;
  for (const auto& option : options_)
    if ((*option).*property) found.push_back(option.get());
  return found;
}

std::vector<const Option*> OptionTable::with(std::string Option::*property, const std::string& value) const {
  std::vector<const Option*> found;
  for (const auto& option : options_)
    if ((*option).*property == value) found.push_back(option.get());
  return found;
}

Json OptionTable::json() const {
  Json all = Json::object();
  for (const auto& option : options_) {
    if (!std::holds_alternative<std::monostate>(option->target)) all[option->name] = value_json(*option);
  }
  return all;
}

}  // namespace apus
