// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/option_groups.h"

namespace apus {

struct ShowOptions {
  HubFlags hub;
  std::string model;
  bool weights = true;  // are they held against config.json?
  std::string folder;   // the model on this machine
  void fields(OptionTable& v);
  void resolve(OptionTable& v);
};

}  // namespace apus
