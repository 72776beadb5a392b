// SPDX-License-Identifier: Apache-2.0
// Who we are among others, from the variables of those who start processes; and what contradicts itself.
#include "dist/launch/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "dist/launch/launcher.h"
#include "tests/refusal.h"

namespace apus {
namespace {

using Variables = std::map<std::string, std::string>;
Lookup of(const Variables& v) {
  return [v](const char* name) { return v.count(name) ? std::optional(v.at(name)) : std::nullopt; };
}

void expect_complaint(const Variables& v, const std::vector<std::string>& parts) {
  const std::string text = test::refusal(Fault::Usage, [&] { read_rank(of(v)), read_launch(of(v)); });
  for (const auto& part : parts) test::expect_says(text, part);
}

TEST(RankEnvironment, NothingMeansOneProcess) {
  for (const Variables& v : {Variables{},
                             {{"WORLD_SIZE", "1"}},
                             {{"RANK", "-1"}, {"WORLD_SIZE", "-1"}},
                             {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}}) {
    const RankEnvironment e = read_rank(of(v));
    EXPECT_EQ(e.world, 1);
    EXPECT_EQ(e.from, "");
  }
}

TEST(RankEnvironment, Torchrun) {
  const RankEnvironment e = read_rank(of({{"RANK", "9"},
                                          {"WORLD_SIZE", "16"},
                                          {"LOCAL_RANK", "1"},
                                          {"LOCAL_WORLD_SIZE", "8"},
                                          {"MASTER_ADDR", "node0"},
                                          {"MASTER_PORT", "1234"},
                                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  EXPECT_EQ(e.rank, 9);
  EXPECT_EQ(e.world, 16);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world, 8);
  EXPECT_EQ(e.address, "node0");
  EXPECT_EQ(e.port, 1235) << "torchrun's own store is at 1234";
  EXPECT_EQ(e.from, "torchrun");
  EXPECT_EQ(read_rank(of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}})).local_world, 2);
  EXPECT_EQ(read_rank(of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}})).local_world,
            1);  // a pod for each
}

TEST(RankEnvironment, SlurmAndOpenMpi) {
  const RankEnvironment s = read_rank(of({{"SLURM_STEP_ID", "0"},
                                          {"SLURM_STEP_NUM_TASKS", "16"},
                                          {"SLURM_PROCID", "11"},
                                          {"SLURM_LOCALID", "3"},
                                          {"SLURM_STEP_NUM_NODES", "2"},
                                          {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                                          {"SLURM_JOB_ID", "1234567"}}));
  EXPECT_EQ(s.rank, 11);
  EXPECT_EQ(s.local_rank, 3);
  EXPECT_EQ(s.local_world, 8);
  EXPECT_EQ(s.address, "gpu07");
  EXPECT_EQ(s.port, 24567);
  EXPECT_EQ(s.from, "Slurm");
  const RankEnvironment m = read_rank(of({{"OMPI_COMM_WORLD_SIZE", "4"},
                                          {"OMPI_COMM_WORLD_RANK", "2"},
                                          {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}));
  EXPECT_EQ(m.rank, 2);
  EXPECT_EQ(m.address, "127.0.0.1");
  EXPECT_EQ(m.from, "Open MPI");
}

TEST(RankEnvironment, HostLists) {
  EXPECT_EQ(first_host("a"), "a");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("n[003-007,9]"), "n003");
  EXPECT_EQ(first_host("n[12,14],m"), "n12");
  EXPECT_EQ(first_host("head,n[1-2]"), "head");
  EXPECT_THROW(first_host("n[1"), Error);
}

TEST(RankEnvironment, ContradictionsAreNamed) {
  expect_complaint({{"WORLD_SIZE", "4"}}, {"WORLD_SIZE=4", "RANK is not"});
  expect_complaint({{"RANK", "1"}}, {"RANK=1", "WORLD_SIZE is not"});
  expect_complaint({{"RANK", "4"}, {"WORLD_SIZE", "4"}}, {"RANK=4", "WORLD_SIZE=4", "from 0"});
  expect_complaint({{"RANK", "x"}, {"WORLD_SIZE", "4"}}, {"RANK='x'"});
  expect_complaint(
      {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
      {"LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"});
  expect_complaint({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}},
                   {"MASTER_ADDR"});
  expect_complaint({{"RANK", "0"},
                    {"WORLD_SIZE", "2"},
                    {"LOCAL_RANK", "0"},
                    {"OMPI_COMM_WORLD_RANK", "1"},
                    {"OMPI_COMM_WORLD_SIZE", "2"}},
                   {"RANK=0", "OMPI_COMM_WORLD_RANK=1", "contradicts"});
  expect_complaint({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
                   {"mpirun -x MASTER_ADDR"});
  expect_complaint({{"NPROC_PER_NODE", "gpu"}}, {"NPROC_PER_NODE='gpu'"});
  expect_complaint({{"NPROC_PER_NODE", "2"}, {"NNODES", "2"}}, {"NODE_RANK"});
  expect_complaint({{"NPROC_PER_NODE", "2"}, {"NNODES", "2"}, {"NODE_RANK", "2"}}, {"NODE_RANK=2", "NNODES=2"});
  expect_complaint({{"NPROC_PER_NODE", "2"}, {"NNODES", "2"}, {"NODE_RANK", "1"}}, {"MASTER_ADDR"});
}

TEST(LaunchPlan, FollowsItsVariables) {
  EXPECT_FALSE(read_launch(of({})));
  EXPECT_FALSE(read_launch(of({{"NPROC_PER_NODE", "2"}, {"LOCAL_RANK", "0"}})));  // one that was started
  EXPECT_EQ(read_launch(of({{"NPROC_PER_NODE", "1"}}))->ranks, 1);
  const auto plan = read_launch(of({{"NPROC_PER_NODE", "8"},
                                    {"NNODES", "2"},
                                    {"NODE_RANK", "1"},
                                    {"MASTER_ADDR", "a"},
                                    {"RANK", "1"},
                                    {"WORLD_SIZE", "2"}}));
  EXPECT_EQ(plan->ranks, 8);
  EXPECT_EQ(plan->node, 1);
  EXPECT_EQ(plan->port, 29500);
  EXPECT_EQ(read_launch(of({{"NNODES", "1"}}))->port, 0);  // any
}

TEST(LaunchPlan, TakesTorchrunsDefaults) {
  const auto plan = read_launch(of({{"PET_NPROC_PER_NODE", "4"},
                                    {"PET_NNODES", "2:2"},
                                    {"PET_NODE_RANK", "1"},
                                    {"PET_MASTER_ADDR", "head"},
                                    {"PET_MASTER_PORT", "23456"}}));
  EXPECT_EQ(plan->ranks, 4);
  EXPECT_EQ(plan->nodes, 2);
  EXPECT_EQ(plan->node, 1);
  EXPECT_EQ(plan->address, "head");
  EXPECT_EQ(plan->port, 23456);
  // A pod of PyTorchJob that is one process: RANK and WORLD_SIZE say all.
  const Variables pod{{"PET_NPROC_PER_NODE", "auto"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
  EXPECT_FALSE(read_launch(of(pod)));
  EXPECT_EQ(read_rank(of(pod)).rank, 1);
  expect_complaint({{"PET_NPROC_PER_NODE", "auto"}}, {"PET_NPROC_PER_NODE=auto", "NPROC_PER_NODE=8"});
  expect_complaint({{"PET_NPROC_PER_NODE", "2"}, {"PET_NNODES", "1:4"}}, {"PET_NNODES=1:4", "fixed number"});
  expect_complaint({{"NPROC_PER_NODE", "2"}, {"PET_NPROC_PER_NODE", "4"}},
                   {"NPROC_PER_NODE=2", "PET_NPROC_PER_NODE=4", "unset one"});
}

TEST(LaunchPlan, RefusesToTrainAloneBesideOtherPods) {
  const auto pod = [](Variables more) {
    more.insert({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}});
    return more;
  };
  expect_complaint(pod({{"NPROC_PER_NODE", "2"}}), {"RANK=1 of WORLD_SIZE=2", "NPROC_PER_NODE=2", "set NNODES"});
  expect_complaint(pod({{"PET_NPROC_PER_NODE", "2"}}), {"without NNODES would let each train alone"});
  expect_complaint(pod({{"NPROC_PER_NODE", "2"}, {"NNODES", "2"}, {"NODE_RANK", "0"}}), {"RANK=1", "NODE_RANK=0"});
  expect_complaint(pod({{"NPROC_PER_NODE", "2"}, {"NNODES", "3"}, {"NODE_RANK", "1"}}), {"WORLD_SIZE=2", "3 machines"});
  EXPECT_EQ(read_launch(of(pod({{"NPROC_PER_NODE", "2"}, {"NNODES", "2"}, {"NODE_RANK", "1"}})))->nodes, 2);
  // As some operators count: all processes, and a pod alone.
  EXPECT_EQ(
      read_launch(of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"PET_NPROC_PER_NODE", "2"}, {"PET_NNODES", "1"}}))->ranks,
      2);
}

TEST(LaunchPlan, InsideAnotherStarter) {
  const std::map<std::string, std::string> mpi{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}},
      slurm{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}},
      nodes{{"NNODES", "2"}, {"NODE_RANK", "1"}, {"MASTER_ADDR", "a"}};
  for (auto variables : {mpi, slurm}) {
    variables["NPROC_PER_NODE"] = "8";
    EXPECT_THROW(read_launch(of(variables)), Error);  // each would start eight
  }
  auto one_a_machine = slurm;
  one_a_machine.insert(nodes.begin(), nodes.end());
  one_a_machine["NPROC_PER_NODE"] = "8";
  EXPECT_EQ(read_launch(of(one_a_machine))->node, 1);
  EXPECT_EQ(read_launch(of({{"NPROC_PER_NODE", "2"}, {"SLURM_STEP_NUM_TASKS", "8"}}))->ranks, 2);  // the batch script
}

TEST(Cores, AreShared) {
  EXPECT_EQ(share_of_cores({0, 1, 2, 3, 8, 9, 10}, 0, 2), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(share_of_cores({0, 1, 2, 3, 8, 9, 10}, 1, 2), (std::vector<int>{3, 8, 9, 10}));
  EXPECT_EQ(share_of_cores({0, 1}, 2, 3), (std::vector<int>{0, 1}));
}

}  // namespace
}  // namespace apus
