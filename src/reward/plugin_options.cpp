// SPDX-License-Identifier: Apache-2.0
#include "reward/plugin_options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/error.h"

namespace apus {
namespace {

constexpr const char* kWhatPluginsAre =
    "files of Python that register rewards, environments and schedulers of turns, as ms-swift has them "
    "(docs/plugins.md)";

bool is_runnable(const std::string& program) {
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

}  // namespace

void PluginOptions::fields(OptionTable& v) {
  const auto& known = v.options();
  const bool refused =
      std::any_of(known.begin(), known.end(), [](const auto& o) { return o->name == "external_plugins"; });
  if (refused) {
    Option& option = v.at("external_plugins");
    option.refusal.clear(), option.target = OptionTarget(&external_plugins), option.help = kWhatPluginsAre;
  } else {
    v("external_plugins", external_plugins, kWhatPluginsAre).alias("custom_register_path", "ms-swift 3's name").noted();
  }
  v("python", python, "the Python that runs --external_plugins, in a process of its own");
}

void PluginOptions::check() const {
  if (external_plugins.empty()) return;
  for (const std::string& file : external_plugins)
    require(std::filesystem::exists(file), Fault::Usage, "--external_plugins ", file, " is not there");
  require(is_runnable(python), Fault::Usage, "--external_plugins are run by Python, and there is no program '", python,
          "': --python PATH names one (this program itself needs none)");
}

}  // namespace apus
