// SPDX-License-Identifier: Apache-2.0
// The options of `apus devices`; --ops is answered by run/devices.cpp.
#pragma once

#include "cli/option_groups.h"

namespace apus {

struct DevicesOptions {
  RunOptions common;
  bool json = false;
  bool ops = false;  // which fused operators are the device's own
  std::string root = "/";

  void fields(OptionTable& v);
};

}  // namespace apus
