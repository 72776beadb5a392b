// SPDX-License-Identifier: Apache-2.0
// Which of how many processes this is, as those who start processes say it: torchrun, Slurm, Open MPI, Apus itself; and
// whether Apus is asked to start them (NPROC_PER_NODE, NNODES). No tensor library.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace apus {

constexpr const char* kLauncherVariable =
    "APUS_LAUNCHER";  // the descriptor on which a rank tells its launcher why it fails

// The first of this machine's devices that the ranks of this process tree take; set by who starts several such trees.
constexpr const char* kFirstDeviceVariable = "APUS_FIRST_DEVICE";

using Lookup = std::function<std::optional<std::string>(const char* variable)>;
Lookup process_environment();

struct RankEnvironment {
  int rank = 0, world = 1;                   // among all processes
  int local_rank = 0, local_world = 1;       // among those of this machine
  std::string address = "127.0.0.1";         // where the first rank listens
  std::string address_from = "MASTER_ADDR";  // the variable that said so
  int port = 29500;
  int first_device = 0;  // rank 0 of the machine takes this one
  std::string from;      // "apus", "torchrun", "Slurm", "Open MPI"; empty: one process
};

// Throws Fault::Usage when variables are missing, no numbers, or contradict each other; all by name.
RankEnvironment read_rank(const Lookup& variable);

struct LaunchPlan {
  int ranks = 1;  // to start here
  int nodes = 1, node = 0;
  std::string address = "127.0.0.1";
  int port = 0;  // 0: any free one (one node)
};

// Nothing when no processes are to be started: no variable asks for it, neither NPROC_PER_NODE or NNODES nor torchrun's
// own (PET_NPROC_PER_NODE, PET_NNODES, ...); or this is such a process.
std::optional<LaunchPlan> read_launch(const Lookup& variable);

// The first name of a list as Slurm writes it: "gpu[07-09,12],head" -> "gpu07".
std::string first_host(const std::string& list);

}  // namespace apus
