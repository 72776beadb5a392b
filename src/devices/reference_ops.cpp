// SPDX-License-Identifier: Apache-2.0
#include "devices/reference_ops.h"

#include <cstdlib>
#include <sstream>

namespace apus {

bool left_to_reference(const std::string& op) {
  const char* list = std::getenv("APUS_REFERENCE_OPS");
  std::istringstream names(list ? list : "");
  for (std::string name; std::getline(names, name, ',');)
    if (name == op || name == "all") return true;
  return false;
}

}  // namespace apus
