// SPDX-License-Identifier: Apache-2.0
#include "cli/comm_check.h"

#include <unistd.h>

#include "base/error.h"
#include "cli/command.h"

namespace apus {

void CommCheckOptions::fields(OptionTable& v) {
  v.group("Communication");
  v("device", device, "kind of device; each process of a machine takes the one of its number");
  v("megabytes", megabytes, "size of the large messages").at_least(1).at_most(4096);
  v("repeats", repeats, "times of each measurement").at_least(1).at_most(1000);
  v("pairs", pairs, "measure every pair of processes, too");
  v("ddp_timeout", ddp_timeout, "seconds that one waits for another").above(0).at_most(1e8);
  v("json", json, "print JSON instead of tables");
  v("output", output, "file that gets the results as JSON");
}

std::filesystem::path CommCheckOptions::ranks_dir() const {
  return std::filesystem::temp_directory_path() / str("apus-comm-check-", ::getpid());
}

namespace {
int run(const CommCheckOptions& options) { return run_heavy("comm-check", &options); }
const RegisterCommand<CommCheckOptions> comm_check_command(
    {.name = "comm-check",
     .group = "Machine",
     .summary = "every collective between the processes: results, latency, bandwidth",
     .examples = {"comm-check --device cpu"}},
    run);
}  // namespace

}  // namespace apus
