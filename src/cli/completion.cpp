// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <variant>

#include "base/error.h"
#include "base/option_value.h"
#include "cli/shell_words.h"

namespace apus {
namespace {

constexpr const char* kBash = R"sh(# bash: source <(apus completion bash)
_apus() {
  local IFS=$'\n'
  COMPREPLY=($(apus --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -o bashdefault -F _apus apus
)sh";

constexpr const char* kZsh = R"sh(#compdef apus
# zsh: source <(apus completion zsh), or this text as _apus in a folder of $fpath
_apus() {
  local -a found
  found=(${(f)"$(apus --complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( ${#found} )); then compadd -- $found; else _files; fi
}
if [ "$funcstack[1]" = "_apus" ]; then _apus "$@"; else compdef _apus apus; fi
)sh";

constexpr const char* kFish = R"sh(# fish: apus completion fish | source
complete -c apus -a '(apus --complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
)sh";

std::vector<std::string> beginning(std::vector<std::string> words, const std::string& typed) {
  std::erase_if(words, [&](const std::string& word) { return !word.starts_with(typed); });
  return words;
}

const Option* option_called(const OptionTable& table, std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  for (const auto& option : table.options()) {
    if (option->name == name) return option.get();
    for (const auto& [other, note] : option->aliases)
      if (other == name) return option.get();
  }
  return nullptr;
}

std::vector<std::string> values_of(const Option& option) {
  if (!option.allowed.empty()) return option.allowed;
  const bool yes_or_no =
      std::holds_alternative<bool*>(option.target) || std::holds_alternative<std::optional<bool>*>(option.target);
  return yes_or_no ? std::vector<std::string>{"true", "false"} : std::vector<std::string>{};
}

std::vector<std::string> flags_of(const OptionTable& table) {
  std::vector<std::string> flags = {"--help", "--print-config"};
  for (const auto& option : table.options())
    if (can_be_given(*option)) flags.push_back("--" + option->name);
  return flags;
}

}  // namespace

bool can_be_given(const Option& option) { return acts(option) && !option.is_hidden && !option.name.empty(); }

std::vector<std::string> completed(const std::vector<const Command*>& commands, const std::vector<std::string>& words) {
  if (words.empty()) return {};
  const std::string& typed = words.back();
  if (words.size() > 1 && words[0] == "megatron")
    return completed(commands, std::vector<std::string>(words.begin() + 1, words.end()));
  if (words.size() == 1 || (words.size() == 2 && words[0] == "help")) {
    std::vector<std::string> names = {"--help", "--version", "completion", "help", "manual"};
    for (const Command* command : commands)
      if (!command->info.group.empty()) names.push_back(command->info.name);
    std::sort(names.begin(), names.end());
    return beginning(std::move(names), typed);
  }
  if (words[0] == "completion") return beginning({"bash", "fish", "zsh"}, typed);
  const Command* command = find_command(words[0]);
  if (!command) return {};
  const std::vector<std::string> given(words.begin() + 1, words.end() - 1);
  const auto instance = command->make(given);
  if (typed.starts_with("-")) return beginning(flags_of(instance->table), typed);
  const auto flag =
      std::find_if(given.rbegin(), given.rend(), [](const std::string& word) { return word.starts_with("--"); });
  const Option* option = flag == given.rend() ? nullptr : option_called(instance->table, flag->substr(2));
  return option ? beginning(values_of(*option), typed) : std::vector<std::string>{};
}

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return kBash;
  if (shell == "zsh") return kZsh;
  if (shell == "fish") return kFish;
  fail(Fault::Usage, "apus completion ", shell, shell.empty() ? "needs the name of a shell" : " is not possible",
       ": bash, zsh or fish, as in `source <(apus completion bash)`");
}

}  // namespace apus
