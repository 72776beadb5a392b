// SPDX-License-Identifier: Apache-2.0
// `megatron rlhf --use_ray true --config FILE`: a file with a block for each role says how many devices the trainer,
// the servers that roll out and a teacher's get. A Ray cluster places them (assets/ray/driver.py).
#pragma once

#include <string>
#include <vector>

#include "base/config_file.h"
#include "base/json.h"

namespace apus {

// Programs of one role: so many, on so many devices each.
struct RayGroup {
  std::string role;
  std::vector<std::string> arguments = {};  // of the program
  int64_t copies = 1, devices = 1;
  std::string address_flag = {};  // of a server: the trainer's flag that gets where it is
};

struct RayGroups {
  std::vector<RayGroup> servers;
  RayGroup trainer;
  int64_t restarts = 0;
  std::string output;  // the trainer's --output_dir
};

// `further`: flags of the command line, which win over the file's. Fault::Usage for what does not fit together.
RayGroups ray_groups(const ConfigFile& file, const std::string& path, const std::vector<std::string>& further);

// What the driver reads.
Json ray_plan(const RayGroups& groups, const std::string& program, const std::string& directory,
              const ConfigFile& file);

// Runs it by Python, whose exit code it gives. Fault::Usage where there is no Python with Ray.
int run_on_ray(const Json& plan);

}  // namespace apus
