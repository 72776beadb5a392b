// SPDX-License-Identifier: Apache-2.0
// `apus topo`: how the devices of this machine are linked, and which cores are near them.
#include <cstdio>

#include "cli/command.h"
#include "cli/option_groups.h"
#include "doctor/inventory.h"
#include "doctor/tables.h"

namespace apus {

namespace {
struct TopoOptions {
  RunOptions common;
  bool json = false;
  std::string root = "/";
  void fields(OptionTable& v) {
    v.group("Topology");
    v("json", json, "print JSON");
    v("root", root, "look at the machine whose files are below this folder");
    common.fields(v);
  }
};

int run(const TopoOptions& options) {
  const auto groups = links(this_machine(options.root));
  const std::string text =
      options.json ? json_text(to_json(groups), 2) + "\n" : links_text(groups, Paint::for_output());
  std::fputs(text.c_str(), stdout);
  return 0;
}
const RegisterCommand<TopoOptions> topo_command({.name = "topo",
                                                 .group = "Machine",
                                                 .summary = "how the devices are linked, and which cores are near them",
                                                 .examples = {"topo", "topo --json"}},
                                                run);
}  // namespace

}  // namespace apus
