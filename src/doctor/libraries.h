// SPDX-License-Identifier: Apache-2.0
// Where the loader would find a shared library, without loading it.
#pragma once

#include <string>
#include <vector>

#include "doctor/host.h"

namespace apus {

// LD_LIBRARY_PATH, the folders of /etc/ld.so.conf, the system's own; in that order. `first`: a library's own run path.
std::vector<Host::Path> library_folders(const Host& host, const std::string& first = "");
// Every place that has it, in the loader's order.
std::vector<Host::Path> find_library(const Host& host, const std::string& name, const std::string& run_path = "");

}  // namespace apus
