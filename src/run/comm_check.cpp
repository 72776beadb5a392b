// SPDX-License-Identifier: Apache-2.0
// apus comm-check, on every rank.
#include "cli/comm_check.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/log.h"
#include "dist/comm_check.h"
#include "dist/world.h"
#include "run/runner.h"

namespace apus {

namespace {

int run(const CommCheckOptions& o) {
  World world({.device = o.device, .timeout_s = o.ddp_timeout, .meeting_s = o.ddp_timeout});
  return world.guard([&] {
    const CommReport report = run_comm_check(world.devices(), world.host(),
                                             {.device = world.device().device,
                                              .bytes = o.megabytes << 20,
                                              .repeats = static_cast<int>(o.repeats),
                                              .pairs = o.pairs});
    if (world.first()) {
      const std::string json = comm_report_json(report).dump(2) + "\n";
      std::fputs(o.json ? json.c_str() : comm_report_text(report).c_str(), stdout);
      if (o.output) write_file_atomic(*o.output, json);
    }
    for (const CollectiveReport& c : report.collectives)
      require(c.wrong.empty(), Fault::Comm, c.name, " gives wrong results: ", c.wrong,
              "; the library or the link between these devices is broken");
    return 0;
  });
}

const RegisterRunner<CommCheckOptions> comm_check("comm-check", run);

}  // namespace
}  // namespace apus
