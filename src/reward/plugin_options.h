// SPDX-License-Identifier: Apache-2.0
// The options of plugins: files of Python that were written for ms-swift.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"

namespace apus {

// A base of rewards and of environments, which share it: `virtual`, and described by who holds both.
struct PluginOptions {
  std::vector<std::string> external_plugins;  // files, or folders of them
  std::string python = "python3";

  void fields(OptionTable& v);  // also where a command has refused them before
  void check() const;
};

}  // namespace apus
