// SPDX-License-Identifier: Apache-2.0
// The help text of a table of options: grouped, in two columns, wrapped.
#include <algorithm>
#include <map>

#include "base/nearest.h"
#include "base/option_value.h"
#include "base/options.h"
#include "base/wrap.h"

namespace apus {

namespace {
constexpr size_t kColumn = 36;  // where explanations begin

std::string explanation(const Option& option) {
  std::string text = option.help;
  if (!option.allowed.empty()) text += str(" (", join(option.allowed), ")");
  std::vector<std::string> spellings;
  for (const auto& [spelling, note] : option.aliases) spellings.push_back("--" + spelling);
  if (!spellings.empty()) text += str("; also ", join(spellings));
  const std::string by_default = default_text(option);
  if (option.is_required) {
    text += " [needed]";
  } else if (!by_default.empty()) {
    text += str(" [", by_default, "]");
  }
  return text;
}

// Flags that share one reason, in one paragraph.
std::string listed_by_reason(const std::vector<const Option*>& options, std::string Option::*reason, size_t width) {
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const Option* option : options) {
    const auto same =
        std::find_if(reasons.begin(), reasons.end(), [&](const auto& r) { return r.first == option->*reason; });
    auto& names =
        same == reasons.end() ? reasons.emplace_back(option->*reason, std::vector<std::string>{}).second : same->second;
    names.push_back("--" + option->name);
  }
  std::string out;
  for (const auto& [why, names] : reasons) out += wrapped(join(names, " ") + ": " + why, 2, 6, width);
  return out;
}

std::string small(std::string text) {
  for (char& c : text) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool mentions(const Option& option, const std::string& word) {
  std::string text = option.name + "\n" + option.help + "\n" + option.group + "\n" + join(option.allowed, "\n");
  for (const auto& [spelling, note] : option.aliases) text += "\n" + spelling;
  return small(text).find(small(word)) != std::string::npos;
}

// Those that act, under the titles of their groups.
std::string by_groups(const std::vector<const Option*>& options, size_t width) {
  std::vector<std::string> titles;
  std::map<std::string, std::string> sections;
  for (const Option* option : options) {
    auto [section, fresh] = sections.emplace(option->group, "");
    if (fresh) titles.push_back(option->group);
    section->second +=
        two_columns(str("--", option->name, " ", type_text(*option)), explanation(*option), kColumn, width);
  }
  std::string out;
  for (const auto& title : titles) out += title + "\n" + sections[title] + "\n";
  return out;
}
}  // namespace

std::string OptionTable::help(int columns, const std::string& word) const {
  const auto width = static_cast<size_t>(std::clamp(columns, 60, 140));
  const bool all = word == "all", plain = word.empty();
  const bool brief = plain && std::any_of(options_.begin(), options_.end(), [](const auto& o) { return o->is_common; });
  std::vector<const Option*> acting, refused, idle;
  size_t more = 0;
  for (const auto& option : options_) {
    if (option->is_hidden || (!plain && !all && !mentions(*option, word))) continue;
    if (acts(*option) && brief && !option->is_common)
      ++more;
    else
      (acts(*option) ? acting : option->refusal.empty() ? idle : refused).push_back(option.get());
  }
  std::string out = by_groups(acting, width);
  if (plain) {
    if (more > 0)
      out += wrapped(
          str("These are the usual ones. ", more,
              " more: `--help WORD` shows those about a word, as in `--help lora`, and `--help all` every one."),
          0, 0, width);
    if (idle.size() + refused.size() > 0)
      out += wrapped(str("Existing scripts may also have ", idle.size(), " options without effect here, and ",
                         refused.size(), " are known but not possible: --help all lists them with the reasons."),
                     0, 0, width);
    return out + "\n";
  }
  if (!idle.empty())
    out += "Accepted for existing scripts, without effect\n" + listed_by_reason(idle, &Option::no_effect, width) + "\n";
  if (!refused.empty())
    out += "Known, but not possible here\n" + listed_by_reason(refused, &Option::refusal, width) + "\n";
  if (!out.empty()) return out;
  return wrapped(str("No option has '", word, "' in its name or explanation", elsewhere(word), "."), 0, 0, width) +
         "\n";
}

}  // namespace apus
