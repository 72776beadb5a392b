// SPDX-License-Identifier: Apache-2.0
// The table of flags (flags.txt): each is honoured with its default, refused with what to do,
// or noted as without effect.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/lines.h"
#include "cli/command.h"
#include "tests/paths.h"

namespace apus {
namespace {

struct Flag {
  std::string command, name, reason;
  Json expected;
};

std::vector<Flag> flags() {
  std::vector<Flag> all;
  std::vector<std::string> commands;
  LineReader file((test::source_dir() / "tests/cli/flags.txt").string());
  for (std::string line; file.next(line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[') {
      std::istringstream words(line.substr(line.find(']') + 1));
      commands.clear();
      for (std::string word; words >> word;) commands.push_back(word);
      continue;
    }
    const size_t space = line.find(' '), reason = line.find(" ~ ");
    for (const std::string& command : commands) {
      const Flag flag{command, line.substr(0, space), reason == std::string::npos ? "" : line.substr(reason + 3),
                      Json::parse(line.substr(space + 1, reason == std::string::npos ? reason : reason - space - 1))};
      const auto same = std::find_if(all.begin(), all.end(),
                                     [&](const Flag& f) { return f.command == command && f.name == flag.name; });
      same == all.end() ? all.push_back(flag) : void(*same = flag);
    }
  }
  return all;
}

const Option* find_option(const OptionTable& table, const std::string& name) {
  for (const auto& option : table.options()) {
    const bool alias =
        std::any_of(option->aliases.begin(), option->aliases.end(), [&](const auto& a) { return a.first == name; });
    if (option->name == name || alias) return option.get();
  }
  return nullptr;
}

bool nothing(const Json& value) { return value.is_null() || value.empty() || value == ""; }

TEST(Flags, EveryOneIsHonouredWithItsDefaultOrExplained) {
  int honoured = 0, refused = 0, noted = 0;
  std::map<std::string, std::unique_ptr<Command::Instance>> made;
  for (const Flag& flag : flags()) {
    const std::string where = flag.command + " --" + flag.name;
    const Command* command = find_command(flag.command);
    ASSERT_NE(command, nullptr) << flag.command;
    auto& instance = made[flag.command];
    if (!instance) instance = command->make();
    const Option* option = find_option(instance->table, flag.name);
    if (!option) {
      ADD_FAILURE() << where << " is unknown";
      continue;
    }
    if (!option->refusal.empty()) {
      ++refused;
    } else if (!option->no_effect.empty()) {
      ++noted;
    } else {
      ++honoured;
      const Json value = instance->table.json()[option->name];
      const bool same = value == flag.expected || (nothing(value) && nothing(flag.expected));
      EXPECT_TRUE(same || !flag.reason.empty()) << where << " is " << value << ", expected " << flag.expected;
      EXPECT_FALSE(same && flag.expected.is_number() && !flag.reason.empty()) << where << " does not differ any more";
    }
  }
  EXPECT_GT(honoured, 300);
  EXPECT_GT(refused, 100);
  EXPECT_GT(noted, 100);
}

}  // namespace
}  // namespace apus
