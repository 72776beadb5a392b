// SPDX-License-Identifier: Apache-2.0
#include "dist/launch/environment.h"

#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace apus {

namespace {

int to_number(const std::string& name, const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(code == std::errc() && end == text.data() + text.size() && value >= least && value <= most, Fault::Usage,
          name, "='", text.substr(0, 50), "' in the environment: a number from ", least, " to ", most, " is needed");
  return value;
}

constexpr int kMostRanks = 1 << 20;

std::optional<int> number(const Lookup& variable, const char* name, int least = 0, int most = kMostRanks) {
  const auto text = variable(name);
  if (!text || text->empty()) return std::nullopt;
  return to_number(name, *text, least, most);
}

// What torchrun takes for an option that is not given: PET_NPROC_PER_NODE for --nproc_per_node. Kubeflow's operators
// set those of every pod. Our own names win; where both stand they must say the same.
struct Setting {
  std::string name, text;
};
std::optional<Setting> setting(const Lookup& variable, const std::string& name) {
  const std::string theirs = "PET_" + name;
  const auto own = variable(name.c_str()), pet = variable(theirs.c_str());
  if (!pet || pet->empty()) return own ? std::optional(Setting{name, *own}) : std::nullopt;
  require(!own || *own == *pet, Fault::Usage, "the environment contradicts itself: ", name, "=", own.value_or(""),
          ", but ", theirs, "=", *pet, "; unset one of them");
  return Setting{theirs, *pet};
}

int port_of(const Lookup& variable) { return number(variable, "MASTER_PORT", 1, 65535).value_or(29500); }

void check(const RankEnvironment& e, const char* rank, const char* world, const char* local, const char* local_world) {
  require(e.rank < e.world, Fault::Usage, rank, "=", e.rank, " in the environment, but ", world, "=", e.world,
          ": ranks count from 0");
  require(e.local_rank < e.local_world, Fault::Usage, local, "=", e.local_rank, " in the environment, but ",
          local_world, "=", e.local_world, ": ranks of a machine count from 0");
  require(e.local_world <= e.world, Fault::Usage, local_world, "=", e.local_world, " in the environment is more than ",
          world, "=", e.world);
}

// Another starter's variables may be there too (torchrun inside a Slurm step):
// only the same count with another rank is a contradiction.
void compare(const Lookup& variable, const RankEnvironment& e, const char* rank_name, const char* world_name) {
  const auto rank = number(variable, rank_name), world = number(variable, world_name);
  require(!rank || !world || *world != e.world || *world == 1 || *rank == e.rank, Fault::Usage,
          "the environment contradicts itself: RANK=", e.rank, " of WORLD_SIZE=", e.world, ", but ", rank_name, "=",
          rank.value_or(0), " of ", world_name, "=", world.value_or(0),
          "; unset RANK and WORLD_SIZE, or set RANK from ", rank_name);
}

std::optional<RankEnvironment> from_torchrun(const Lookup& variable) {
  const auto rank = number(variable, "RANK", -1), world = number(variable, "WORLD_SIZE", -1);
  if (rank.value_or(-1) < 0 && world.value_or(-1) <= 1) return std::nullopt;  // -1: "not distributed"
  require(rank.value_or(-1) >= 0, Fault::Usage, "WORLD_SIZE=", *world,
          " is in the environment, but RANK is not: set both, or neither");
  require(world.value_or(-1) >= 1, Fault::Usage, "RANK=", *rank,
          " is in the environment, but WORLD_SIZE is not: set both, or neither");
  RankEnvironment e;
  e.from = variable(kLauncherVariable) ? "apus" : "torchrun", e.rank = *rank, e.world = *world;
  e.local_rank = number(variable, "LOCAL_RANK").value_or(0);
  const auto local_world = number(variable, "LOCAL_WORLD_SIZE", 1);
  const auto nodes = number(variable, "NNODES", 1);
  if (local_world)
    e.local_world = *local_world;
  else if (variable("LOCAL_RANK"))
    e.local_world = nodes ? std::max(1, e.world / *nodes) : e.world;
  check(e, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  const auto address = variable("MASTER_ADDR");
  require(address || e.world == e.local_world, Fault::Usage, "WORLD_SIZE=", e.world,
          " and LOCAL_WORLD_SIZE=", e.local_world,
          " say that there are other machines: set MASTER_ADDR to the name of the first one");
  e.address = address.value_or("127.0.0.1"), e.port = port_of(variable);
  // torchrun keeps a store of its own at MASTER_PORT, in the protocol of its torch, with what ranks before a restart
  // have left in it. The first rank serves another one, behind it.
  const auto agent = variable("TORCHELASTIC_USE_AGENT_STORE");
  if (agent && (*agent == "True" || *agent == "true" || *agent == "1")) {
    const int restarts = number(variable, "TORCHELASTIC_RESTART_COUNT").value_or(0);
    e.port = 1024 + (e.port - 1024 + 1 + restarts) % (65536 - 1024);
  }
  compare(variable, e, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  compare(variable, e, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  return e;
}

std::optional<RankEnvironment> from_open_mpi(const Lookup& variable) {
  const auto world = number(variable, "OMPI_COMM_WORLD_SIZE", 1);
  if (!world) return std::nullopt;
  const auto rank = number(variable, "OMPI_COMM_WORLD_RANK");
  require(rank.has_value(), Fault::Usage, "OMPI_COMM_WORLD_SIZE=", *world,
          " is in the environment, but OMPI_COMM_WORLD_RANK is not");
  RankEnvironment e;
  e.from = "Open MPI", e.rank = *rank, e.world = *world;
  e.local_rank = number(variable, "OMPI_COMM_WORLD_LOCAL_RANK").value_or(0);
  e.local_world = number(variable, "OMPI_COMM_WORLD_LOCAL_SIZE", 1).value_or(1);
  check(e, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  const auto address = variable("MASTER_ADDR");
  require(address || e.world == e.local_world, Fault::Usage, "Open MPI runs these ", e.world,
          " processes on several machines: say where the first one is, e.g. mpirun -x MASTER_ADDR=$(hostname) ...");
  e.address = address.value_or("127.0.0.1"), e.port = port_of(variable);
  return e;
}

// Only inside a step (srun): the batch script itself carries SLURM_PROCID=0 and SLURM_NTASKS too, and is one process.
std::optional<RankEnvironment> from_slurm(const Lookup& variable) {
  const auto step = variable("SLURM_STEP_ID") ? variable("SLURM_STEP_ID") : variable("SLURM_STEPID");
  const auto world = number(variable, "SLURM_STEP_NUM_TASKS", 1), rank = number(variable, "SLURM_PROCID");
  if (!step || !world || !rank || *world == 1) return std::nullopt;
  RankEnvironment e;
  e.from = "Slurm", e.rank = *rank, e.world = *world;
  e.local_rank = number(variable, "SLURM_LOCALID").value_or(0);
  const int nodes = number(variable, "SLURM_STEP_NUM_NODES", 1).value_or(1);
  e.local_world = std::max(e.local_rank + 1, (e.world + nodes - 1) / nodes);
  check(e, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "the tasks of this node");
  const auto address = variable("MASTER_ADDR"), list = variable("SLURM_STEP_NODELIST");
  if (address)
    e.address = *address;
  else if (nodes > 1 && list)
    e.address = first_host(*list), e.address_from = "SLURM_STEP_NODELIST";
  // Two jobs on a machine must not meet at one port.
  const auto job = variable("SLURM_JOB_ID");
  e.port = variable("MASTER_PORT") || !job ? port_of(variable)
                                           : 20000 + to_number("SLURM_JOB_ID", *job, 0, 2147483647) % 10000;
  return e;
}

// mpirun or srun that started one process on each machine is right (NNODES as many); one for each rank would make
// every rank a launcher of further ones.
void check_starter(const Lookup& variable, const LaunchPlan& plan) {
  const auto mpi = number(variable, "OMPI_COMM_WORLD_SIZE", 1);
  const auto step = variable("SLURM_STEP_ID") ? variable("SLURM_STEP_ID") : variable("SLURM_STEPID");
  const auto slurm = step ? number(variable, "SLURM_STEP_NUM_TASKS", 1) : std::nullopt;
  const int tasks = mpi ? *mpi : slurm.value_or(1);
  require(tasks == 1 || tasks == plan.nodes, Fault::Usage, mpi ? "mpirun" : "srun", " has started ", tasks,
          " processes, and NPROC_PER_NODE or NNODES asks each of them to start ", plan.ranks,
          " more: unset NPROC_PER_NODE and NNODES, whose place it takes, or start one process a machine with NNODES=",
          tasks);
}

// RANK and WORLD_SIZE beside a wish to start processes are those of the pod (PyTorchJob): they count pods, or, some of
// its releases, all processes.
void check_pod(const Lookup& variable, const LaunchPlan& plan, bool counted) {
  const auto rank = number(variable, "RANK", -1), world = number(variable, "WORLD_SIZE", -1);
  if (!rank || *rank < 0 || !world || *world <= 1) return;
  const std::string said = str("RANK=", *rank, " of WORLD_SIZE=", *world, " in the environment");
  require(
      counted, Fault::Usage, said, " speaks of other machines, and NPROC_PER_NODE=", plan.ranks,
      " without NNODES would let each train alone: set NNODES to their number and NODE_RANK to this one's; or unset "
      "NPROC_PER_NODE, where each is one process");
  const bool of_pods = *world == plan.nodes;
  require((of_pods && *rank == plan.node) || (!of_pods && *world == plan.nodes * plan.ranks), Fault::Usage, said,
          ", but ", plan.nodes, plan.nodes == 1 ? " machine" : " machines", " (NNODES) of ", plan.ranks,
          " processes (NPROC_PER_NODE), and NODE_RANK=", plan.node,
          ": unset RANK and WORLD_SIZE, or make them say the same");
}

// torchrun counts devices or cores for these words.
bool left_to_torchrun(const Setting& ranks) {
  return ranks.text == "auto" || ranks.text == "gpu" || ranks.text == "cpu" || ranks.text == "xpu";
}

// torchrun takes a range of them too, among which it would wait: "2:2" is two.
int nodes_of(const Setting& nodes) {
  const size_t colon = nodes.text.find(':');
  const int least = to_number(nodes.name, nodes.text.substr(0, colon), 1, kMostRanks);
  require(colon == std::string::npos || to_number(nodes.name, nodes.text.substr(colon + 1), 1, kMostRanks) == least,
          Fault::Usage, nodes.name, "=", nodes.text,
          " in the environment: a run has a fixed number of machines here; name it, e.g. NNODES=", least);
  return least;
}

}  // namespace

Lookup process_environment() {
  return [](const char* variable) -> std::optional<std::string> {
    const char* value = std::getenv(variable);
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

RankEnvironment read_rank(const Lookup& variable) {
  auto e = from_torchrun(variable);
  if (!e) e = from_open_mpi(variable);
  if (!e) e = from_slurm(variable);
  RankEnvironment rank = e.value_or(RankEnvironment{});
  rank.first_device = number(variable, kFirstDeviceVariable).value_or(0);
  return rank;
}

std::optional<LaunchPlan> read_launch(const Lookup& variable) {
  if (variable("LOCAL_RANK")) return std::nullopt;
  const auto ranks = setting(variable, "NPROC_PER_NODE"), nodes = setting(variable, "NNODES");
  if (ranks && ranks->name.starts_with("PET_") && left_to_torchrun(*ranks)) {
    // Where each pod is a rank already, as PyTorchJob's RANK and WORLD_SIZE say, it needs no count.
    if (variable("RANK") && variable("WORLD_SIZE")) return std::nullopt;
    fail(Fault::Usage, ranks->name, "=", ranks->text,
         " in the environment leaves the count to torchrun: say how many processes each machine starts, e.g. "
         "NPROC_PER_NODE=8");
  }
  if (!ranks && !nodes) return std::nullopt;
  LaunchPlan plan;
  if (ranks) plan.ranks = to_number(ranks->name, ranks->text, 1, 1024);
  if (nodes) plan.nodes = nodes_of(*nodes);
  const auto node = setting(variable, "NODE_RANK");
  if (node) plan.node = to_number(node->name, node->text, 0, kMostRanks);
  require(plan.node < plan.nodes, Fault::Usage, "NODE_RANK=", plan.node, " in the environment, but NNODES=", plan.nodes,
          ": nodes count from 0");
  check_starter(variable, plan);
  check_pod(variable, plan, nodes.has_value());
  const auto port = variable("MASTER_PORT") ? number(variable, "MASTER_PORT", 1, 65535)
                                            : number(variable, "PET_MASTER_PORT", 1, 65535);
  plan.port = port.value_or(plan.nodes > 1 ? 29500 : 0);
  if (plan.nodes == 1) return plan;
  require(node.has_value(), Fault::Usage, "NNODES=", plan.nodes,
          " needs NODE_RANK: 0 on the first machine, 1 on the next, ...");
  const auto address = variable("MASTER_ADDR") ? variable("MASTER_ADDR") : variable("PET_MASTER_ADDR");
  require(address.has_value(), Fault::Usage, "NNODES=", plan.nodes,
          " needs MASTER_ADDR: the name or address of the machine with NODE_RANK=0");
  plan.address = *address;
  return plan;
}

std::string first_host(const std::string& list) {
  const size_t comma = list.find(','), open = list.find('[');
  if (open == std::string::npos || comma < open) return list.substr(0, comma);
  const size_t end = list.find_first_of(",-]", open + 1);
  require(end != std::string::npos, Fault::Usage, "'", list.substr(0, 100), "' is no list of nodes as Slurm writes it");
  return list.substr(0, open) + list.substr(open + 1, end - open - 1);
}

}  // namespace apus
