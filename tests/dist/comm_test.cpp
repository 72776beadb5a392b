// SPDX-License-Identifier: Apache-2.0
// Communicators between real processes: results, numbers below f32, and what is said when a rank is late, gone or lost.
#include "device/comm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "device/agree.h"
#include "dist/comm_check.h"
#include "dist/shared_folder.h"
#include "dist/world.h"
#include "tests/folder.h"
#include "tests/rank_body.h"
#include "tests/refusal.h"

namespace apus {
namespace {
using test::expect_says;
using test::RankBody;
using test::refusal;
using test::run_ranks;

const RankBody check("comm.check", [](const auto& arguments) {
  World world({.device = arguments[0], .timeout_s = 60});
  const CommReport report =
      run_comm_check(world.devices(), world.host(), {.device = world.device().device, .bytes = 5 << 20, .repeats = 1});
  EXPECT_GE(report.collectives.size(), 7u);
  for (const CollectiveReport& c : report.collectives) EXPECT_EQ(c.wrong, "") << c.name;
  EXPECT_GT(report.pair_us[0][1], 0);
});

TEST(Comm, EveryCollectiveIsRight) {
  for (const int ranks : {2, 3}) {
    const test::Ranks r = run_ranks(ranks, "comm.check", {"cpu"});
    EXPECT_EQ(r.code, 0) << r.said;
  }
}

const RankBody folders("comm.folders", [](const auto& arguments) {
  World world({.device = "cpu", .timeout_s = 60});
  const std::filesystem::path own = arguments[static_cast<size_t>(world.rank()) % arguments.size()];
  require_shared_folder(own, world.host(), 1, "--deepspeed zero3");
  if (world.rank() == 0)
    EXPECT_TRUE(std::filesystem::is_empty(own)) << "the first removes what it wrote, the others go on";
});

TEST(SharedFolder, IsRefusedAtOnceWhereARankDoesNotSeeIt) {
  const test::Folder one, other;
  const test::Ranks shared = run_ranks(3, "comm.folders", {one.path.string()});
  EXPECT_EQ(shared.code, 0) << shared.said;
  const test::Ranks apart = run_ranks(3, "comm.folders", {one.path.string(), other.path.string()});
  EXPECT_EQ(apart.code, exit_code(Fault::Usage)) << apart.said;
  expect_says(apart.said, "is not seen by rank 1 on ");
  expect_says(apart.said, "With --deepspeed zero3 each rank writes its part of a checkpoint");
}

const RankBody types("comm.types", [](const auto&) {
  World world({.device = "cpu", .timeout_s = 60});
  Comm& comm = world.devices();
  const int n = comm.size(), me = comm.rank();
  for (const int64_t count : {int64_t{1}, int64_t{1000}, int64_t{3000001}}) {
    // bf16: one rank holds 256, the others 1; in bf16 itself 256 + 1 = 256, so only a sum in f32 is right.
    const at::Tensor b = at::full({count}, me == 0 ? 256.0 : 1.0, at::kBFloat16);
    comm.all_reduce(b)->wait();
    EXPECT_TRUE(at::equal(b, at::full({count}, 256.0 + n - 1, at::kFloat).to(at::kBFloat16))) << count;
    const at::Tensor f = at::arange(count, at::kFloat).add(me);
    comm.all_reduce(f, Reduce::Avg)->wait();
    EXPECT_TRUE(at::allclose(f, at::arange(count, at::kFloat).add((n - 1) / 2.0), 1e-6, 1e-6)) << count;
    const at::Tensor whole = at::full({count}, me == 1 ? -7 : 3, at::kLong);
    comm.all_reduce(whole, Reduce::Min)->wait();
    EXPECT_TRUE(at::equal(whole, at::full({count}, -7, at::kLong)));
  }
  const at::Tensor flag = at::full({4}, me == 1, at::kBool);
  comm.all_reduce(flag, Reduce::Max)->wait();
  EXPECT_TRUE(flag.all().item<bool>());
  const at::Tensor wide = at::arange(12, at::kFloat).view({3, 4}).t();  // not contiguous
  comm.all_reduce(wide)->wait();
  EXPECT_TRUE(at::equal(wide, at::arange(12, at::kFloat).view({3, 4}).t().mul(n)));
  // Every rank holds the same bits, whatever the order in which parts arrived.
  const at::Tensor bits = at::arange(100003, at::kFloat).mul(0.1).add(me * 0.3).sin();
  comm.all_reduce(bits)->wait();
  const at::Tensor mine = bits.clone();
  comm.broadcast(bits, n - 1)->wait();
  EXPECT_TRUE(at::equal(mine, bits));
  const auto texts = gather_text(std::string(static_cast<size_t>(me), 'x'), world.host());
  for (int r = 0; r < n; ++r) EXPECT_EQ(texts[static_cast<size_t>(r)].size(), static_cast<size_t>(r));
  // Operations that overlap: handles waited for in another order.
  std::vector<at::Tensor> many;
  std::vector<WorkPtr> works;
  for (int i = 0; i < 20; ++i)
    many.push_back(at::full({5000}, i + me, at::kFloat)), works.push_back(comm.all_reduce(many.back()));
  for (int i = 19; i >= 0; --i) {
    works[static_cast<size_t>(i)]->wait();
    EXPECT_EQ(many[static_cast<size_t>(i)][7].item<float>(), static_cast<float>(i * n + n * (n - 1) / 2));
  }
  // A subgroup of its own.
  if (me < 2) {
    const auto pair = world.connect("pair", {0, 1});
    const at::Tensor t = at::full({3}, me + 1.0, at::kFloat);
    pair->all_reduce(t)->wait();
    EXPECT_EQ(t[0].item<float>(), 3);
    // Both send first: sends and receives do not wait for each other.
    const at::Tensor big = at::full({1 << 20}, me, at::kFloat), got = at::zeros({1 << 20}, at::kFloat);
    const WorkPtr sent = pair->send(big, 1 - me), received = pair->recv(got, 1 - me);
    sent->wait(), received->wait();
    EXPECT_EQ(got[5].item<float>(), static_cast<float>(1 - me));
  }
  world.host().barrier();
});

TEST(Comm, TypesOrdersAndSubgroups) {
  const test::Ranks r = run_ranks(3, "comm.types");
  EXPECT_EQ(r.code, 0) << r.said;
}

// The limit holds for the start of the processes, too, which a busy machine makes slow.
const RankBody comes_late("comm.late", [](const auto&) {
  World world({.device = "cpu", .timeout_s = 8});
  if (world.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(13));
  const Stopwatch watch;
  const std::string text = refusal(Fault::Comm, [&] { world.devices().all_reduce(at::zeros({8}))->wait(); });
  EXPECT_LT(watch.seconds(), 12);
  for (const char* part : {"rank 0", "waited 8 s", "all_reduce", "rank 1", "--ddp_timeout"}) expect_says(text, part);
});

TEST(Comm, ALateRankIsNamedAfterTheLimit) {
  const test::Ranks r = run_ranks(2, "comm.late");
  EXPECT_EQ(r.code, 0) << r.said;
}

const RankBody gone("comm.gone", [](const auto&) {
  World world({.device = "cpu", .timeout_s = 60});
  if (world.rank() == 1) std::_Exit(0);
  const std::string text = refusal(Fault::Comm, [&] {
    for (;;) world.devices().barrier();
  });
  for (const char* part : {"lost the connection to rank 1", "barrier"}) expect_says(text, part);
});

TEST(Comm, AGoneRankIsNamed) {
  const test::Ranks r = run_ranks(2, "comm.gone");
  EXPECT_EQ(r.code, 0) << r.said;
}

const RankBody reason("comm.reason", [](const auto&) {
  World world({.device = "cpu", .timeout_s = 60});
  if (world.rank() == 0) {
    const std::string text = refusal(Fault::Comm, [&] {
      for (;;) world.devices().barrier();
    });
    return expect_says(text, "rank 1 failed: row 7 is broken");
  }
  world.host();
  try {
    world.guard([]() -> int { fail(Fault::Data, "row 7 is broken"); });
  } catch (const Error&) {  // this process ends well, for the test's sake
  }
});

TEST(Comm, TheReasonOfAnotherRanksFailureIsTold) {
  const test::Ranks r = run_ranks(2, "comm.reason");
  EXPECT_EQ(r.code, 0) << r.said;
}

const RankBody different("comm.different", [](const auto&) {
  World world({.device = "cpu", .timeout_s = 10});
  const std::string text = refusal(Fault::Comm, [&] {
    if (world.rank() == 0)
      world.devices().all_reduce(at::zeros({8}))->wait();
    else
      world.devices().all_gather(at::zeros({16}), at::zeros({8}))->wait();
  });
  EXPECT_TRUE(text.find("do different things") != std::string::npos ||
              text.find("lost the connection") != std::string::npos)
      << text;
  refusal(Fault::Comm, [&] { world.devices().barrier(); });  // nothing works after it
});

TEST(Comm, RanksThatDoDifferentThingsAreStopped) {
  const test::Ranks r = run_ranks(2, "comm.different");
  EXPECT_EQ(r.code, 0) << r.said;
}

const RankBody options("comm.options", [](const auto&) {
  World world({.device = "cpu", .timeout_s = 10});
  world.require_same("--a 1\n--b 2\n", "the options");
  const std::string text =
      refusal(Fault::Usage, [&] { world.require_same(str("--a 1\n--lr ", world.rank(), "\n"), "the options"); });
  expect_says(text, "rank 0 has `--lr 0`, rank 1 has `--lr 1`");
  world.host().barrier();
});

TEST(World, OptionsMustBeTheSame) {
  const test::Ranks r = run_ranks(2, "comm.options");
  EXPECT_EQ(r.code, 0) << r.said;
}

TEST(World, ARankThatNeverComesIsAnErrorWithTheLimit) {
  const auto alone = [](const char* name) -> std::optional<std::string> {
    const std::map<std::string, std::string> v = {
        {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29871"}};
    return v.count(name) ? std::optional(v.at(name)) : std::nullopt;
  };
  const std::string text =
      refusal(Fault::Comm, [&] { World({.device = "cpu", .timeout_s = 1, .meeting_s = 1}, alone); });
  for (const char* part : {"127.0.0.1:29871", "did not answer within 1 s", "MASTER_ADDR"}) expect_says(text, part);
}

TEST(World, OneProcessNeedsNobody) {
  World world({.device = "cpu"}, [](const char*) { return std::nullopt; });
  const CommReport report = run_comm_check(world.devices(), world.host(), {.bytes = 1 << 16, .repeats = 1});
  EXPECT_TRUE(report.sound());
  EXPECT_NE(comm_report_text(report).find("all_reduce"), std::string::npos);
}

}  // namespace
}  // namespace apus
