// SPDX-License-Identifier: Apache-2.0
// A YAML or JSON file of options: a mapping of option names to values, and a block ENV of environment variables.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace apus {

struct ConfigEntry {
  std::string key;
  Json value;  // with types
  // As it was written: one per item of a list, else one ("1.10" stays "1.10").
  std::vector<std::string> words;
};

struct ConfigFile {
  // In the file's order; nulls are left out: they mean "not given"
  std::vector<ConfigEntry> entries;
  std::vector<std::pair<std::string, std::string>> environment;
};

bool names_config_file(const std::string& argument);  // ends in .json, .yaml or .yml
ConfigFile read_config_file(const std::string& path);
ConfigFile parse_config(const std::string& text, bool yaml, const std::string& path);
// ${NAME} and $NAME in its texts become the variables of the environment. $NAME that is no variable stays as it is;
// ${NAME} that is none is Fault::Usage. $$ is a dollar.
void fill_in_environment(ConfigEntry& entry, const std::string& path);

}  // namespace apus
