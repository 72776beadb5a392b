// SPDX-License-Identifier: Apache-2.0
// An interrupted run equals an uninterrupted one to the bit; checkpoints are whole whatever happens; and what does not
// fit is named.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "checkpoint/adapter.h"
#include "tests/refusal.h"
#include "tests/train/training.h"

namespace apus {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using golden::Folder;
using golden::TestRun;
using golden::weights;

struct Variant {
  const char* name;
  at::ScalarType type;
  OptimizerSpec spec;
  bool lora;
  int64_t lisa_layers = 0;
};

struct Started {
  std::unique_ptr<TestRun> run;
  Adapter adapter;
};

// `from`: a checkpoint to go on from.
Started start(const Variant& v, const fs::path& out, const fs::path& from = {}, int64_t save_steps = 3, double lr = 0,
              TrainerOptions options = {}, std::function<int64_t()> room = {}) {
  const Case c("train_qwen2");
  Json hyper = c.json["runs"]["adamw_hf_trainer_groups"]["hyper"];
  if (lr > 0) hyper["lr"] = lr;
  Started s;
  auto model = golden::owned_model(!v.lora && !from.empty() ? from : c.dir / "checkpoint", v.type);
  if (v.lora) {
    s.adapter = make_adapter(*model,
                             {.r = 4,
                              .alpha = 8,
                              .dropout = 0.2,
                              .target_modules = {"q_proj", "o_proj", "up_proj"},
                              .modules_to_save = {"norm"},
                              .init = v.name == std::string("pissa") ? "pissa" : "true"},
                             3);
    if (!from.empty()) restore_adapter(*model, s.adapter, from);
  }
  options.loop.save_steps = static_cast<double>(save_steps), options.output_dir = out;
  options.forward = {
      .recomputed_layers = 1, .selective = Forward::Selective{.feed_forward = true}, .neftune_alpha = 5, .watch = {}};
  options.exact = {{"rows", 10}};
  auto batches = golden::train_batches(c);
  s.run = std::make_unique<TestRun>(std::move(model), hyper, std::move(batches), options, v.spec, SftOptions(), nullptr,
                                    v.lisa_layers, std::move(room));
  auto* run = s.run.get();
  if (v.lora)
    run->save = [run, a = s.adapter](const fs::path& dir) { save_adapter(*run->model, a, dir, {}); };
  else
    golden::save_whole_models(*run, c.dir / "checkpoint", v.type);
  if (!from.empty()) run->trainer->resume(read_state(from), {});
  return s;
}

class Resume : public ::testing::TestWithParam<Variant> {};

TEST_P(Resume, IsBitIdentical) {
  Folder whole, again;
  Started uninterrupted = start(GetParam(), whole.path);
  const TrainResult first = uninterrupted.run->trainer->run();
  Started resumed = start(GetParam(), again.path, whole.path / "checkpoint-6");
  const TrainResult second = resumed.run->trainer->run();
  golden::expect_same(*uninterrupted.run, *resumed.run);
  ASSERT_EQ(first.log_history.size(), 10u);
  ASSERT_EQ(second.log_history.size(), 10u);  // the first six come from the checkpoint
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(first.log_history[i]["loss"], second.log_history[i]["loss"]) << i;
}

INSTANTIATE_TEST_SUITE_P(
    Variants, Resume,
    ::testing::Values(Variant{"f32", at::kFloat, {}, false}, Variant{"bf16_master", at::kBFloat16, {}, false},
                      Variant{"bf16_stochastic", at::kBFloat16, {.rounding = Rounding::Stochastic}, false},
                      Variant{"eight_bit", at::kBFloat16, {.kind = "adamw_8bit"}, false},
                      Variant{"four_bit", at::kBFloat16, {.kind = "adamw_4bit"}, false},
                      Variant{"adafactor", at::kFloat, {.kind = "adafactor"}, false},
                      Variant{"sgd", at::kFloat, {.kind = "sgd", .arguments = {{"momentum", "0.9"}}}, false},
                      Variant{"muon", at::kFloat, {.kind = "muon"}, false},
                      Variant{
                          "muonclip", at::kFloat, {.kind = "muonclip", .arguments = {{"qk_clip_tau", "0.01"}}}, false},
                      Variant{"lora", at::kFloat, {}, true}, Variant{"pissa", at::kFloat, {}, true},
                      Variant{"galore", at::kFloat, {.kind = "galore_adamw", .arguments = {{"rank", "4"}}}, false},
                      Variant{"schedule_free", at::kFloat, {.kind = "schedule_free_adamw"}, false},
                      Variant{"schedule_free_bf16", at::kBFloat16, {.kind = "schedule_free_radam"}, false},
                      Variant{"lisa", at::kFloat, {}, false, 1}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ResumeChecks, NameWhatDiffers) {
  Folder out, again;
  const Variant v{"f32", at::kFloat, {}, false};
  start(v, out.path).run->trainer->run();
  const fs::path from = out.path / "checkpoint-6";
  RunState saved = read_state(from);
  saved.exact["rows"] = 11;
  Started other = start(v, again.path);
  try {
    other.run->trainer->resume(saved, {});
    FAIL() << "must be refused";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rows: 11 there, 10 here"), std::string::npos) << e.what();
  }
  Started sgd = start({"sgd", at::kFloat, {.kind = "sgd"}, false}, again.path);
  EXPECT_THROW(sgd.run->trainer->resume(read_state(from), {}), Error);
  fs::remove(from / "optimizer.safetensors");
  EXPECT_THROW(read_state(from), Error);
}

std::string why(const std::function<void()>& what) {
  try {
    what();
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.at.fault, Fault::Usage);
    return e.what();
  }
}

TEST(ResumeChecks, CheckpointsOfOtherBuilds) {
  Folder out, again;
  const Variant v{"f32", at::kFloat, {}, false};
  start(v, out.path).run->trainer->run();
  const fs::path from = out.path / "checkpoint-6", file = from / "apus_state.json";
  const Json written = Json::parse(read_file(file));
  // What only one of the builds notes cannot be compared: the run goes on, and that is said.
  Json older = written;
  older["exact"].erase("rows"), older["exact"]["encoding"] = "0123";
  write_file_atomic(file, older.dump());
  RunState mine;
  mine.exact = written["exact"], mine.noted = written["noted"], mine.optimizer = "adamw";
  const auto remarks = check_resume(read_state(from), mine);
  ASSERT_EQ(remarks.size(), 2u);
  EXPECT_NE(remarks[0].find("does not note rows: taken as unchanged"), std::string::npos) << remarks[0];
  EXPECT_NE(remarks[1].find("whose encoding this one does not compare"), std::string::npos) << remarks[1];
  Started resumed = start(v, again.path, from);
  EXPECT_EQ(resumed.run->trainer->run().step, 10);
  // A state of another format, or without its parts: what can be done is said.
  for (const char* part : {"format", "data"}) {
    Json other = written;
    other.erase(part);
    write_file_atomic(file, other.dump());
    const std::string reason = why([&] { read_state(from); });
    EXPECT_NE(reason.find("--resume_only_model true --ignore_data_skip true"), std::string::npos) << reason;
    EXPECT_NE(reason.find(part), std::string::npos) << reason;
  }
}

TEST(Checkpoints, AreRotatedAndLinked) {
  Folder out;
  for (const int step : {5, 10, 15, 20}) {
    FolderWriter w(out.path / str("checkpoint-", step));
    write_file_atomic(w.dir() / "x", "x");
    w.commit();
  }
  { FolderWriter abandoned(out.path / "checkpoint-25"); }
  rotate_checkpoints(out.path, 2, {out.path / "checkpoint-5", out.path / "checkpoint-20"});
  const auto left = list_checkpoints(out.path);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].first, 5);
  EXPECT_EQ(left[1].first, 20);
  point_link(out.path, "last", out.path / "checkpoint-5");
  point_link(out.path, "last", out.path / "checkpoint-20");
  EXPECT_EQ(fs::read_symlink(out.path / "last"), "checkpoint-20");
  EXPECT_EQ(std::distance(fs::directory_iterator(out.path), fs::directory_iterator()), 3);
}

TEST(Checkpoints, AFailedSaveDoesNotEndTheRun) {
  Folder out;
  Started s = start({"f32", at::kFloat, {}, false}, out.path);
  auto good = s.run->save;
  int calls = 0;
  s.run->save = [&](const fs::path& dir) {
    good(dir);
    require(++calls != 2, Fault::Io, "No space left on device");
  };
  const TrainResult result = s.run->trainer->run();
  EXPECT_EQ(result.step, 10);
  std::vector<int64_t> steps;
  for (const auto& [step, dir] : list_checkpoints(out.path)) steps.push_back(step);
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 9, 10}));
  for (const auto& entry : fs::directory_iterator(out.path))
    EXPECT_EQ(entry.path().filename().string().find("partial"), std::string::npos);
}

TEST(Checkpoints, AFailedSaveAtTheEndFailsTheRun) {
  for (const int64_t save_steps : {3, 5}) {  // the last step is one to save at, or not
    Folder out;
    Started s = start({"f32", at::kFloat, {}, false}, out.path, {}, save_steps, 0, {.loop = {.save_retry_seconds = 0}});
    s.run->save = [&, good = s.run->save](const fs::path& dir) {
      good(dir);
      require(dir.filename().string().find("checkpoint-10") == std::string::npos, Fault::Io, "No space left on device");
    };
    const std::string text = test::refusal(Fault::Io, [&] { s.run->trainer->run(); });
    test::expect_says(text, str("the checkpoint of step ", save_steps == 3 ? 9 : 5, " is whole"));
    EXPECT_EQ(list_checkpoints(out.path).back().first, save_steps == 3 ? 9 : 5);
  }
}

TEST(Checkpoints, TheLastOneIsTriedAgain) {
  Folder out;
  Started s = start({"f32", at::kFloat, {}, false}, out.path, {}, 5, 0, {.loop = {.save_retry_seconds = 2}});
  int full = 3;
  s.run->save = [&, good = s.run->save](const fs::path& dir) {
    good(dir);
    require(dir.filename().string().find("checkpoint-10") == std::string::npos || full-- <= 0, Fault::Io,
            "No space left on device");
  };
  EXPECT_EQ(s.run->trainer->run().last_checkpoint, out.path / "checkpoint-10");
  EXPECT_EQ(list_checkpoints(out.path).size(), 2u);
}

TEST(Checkpoints, TheLastOneGoesToASecondPlace) {
  Folder out, second;
  Started s =
      start({"f32", at::kFloat, {}, false}, out.path, {}, 5, 0, {.loop = {.save_fallback_dir = second.path.string()}});
  s.run->save = [&, good = s.run->save](const fs::path& dir) {
    good(dir);
    require(dir.string().find(second.path.string()) == 0 ||
                dir.filename().string().find("checkpoint-10") == std::string::npos,
            Fault::Io, "No space left on device");
  };
  const fs::path saved = second.path / out.path.filename() / "checkpoint-10";
  EXPECT_EQ(s.run->trainer->run().last_checkpoint, saved);
  EXPECT_EQ(read_state(saved).step, 10);
}

int64_t much_room() { return int64_t{1} << 30; }

TEST(SavedBehind, IsTheSameToTheByte) {
  for (const Variant& v : {Variant{"f32", at::kFloat, {}, false}, Variant{"lora", at::kFloat, {}, true},
                           Variant{"schedule_free", at::kFloat, {.kind = "schedule_free_adamw"}, false}}) {
    Folder at_once, behind;
    Started a = start(v, at_once.path), b = start(v, behind.path, {}, 3, 0, {}, much_room);
    a.run->trainer->run();
    EXPECT_EQ(b.run->trainer->run().last_checkpoint, behind.path / "checkpoint-10");
    golden::expect_same(*a.run, *b.run);
    int files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(at_once.path)) {
      if (!entry.is_regular_file()) continue;
      const fs::path twin = behind.path / entry.path().lexically_relative(at_once.path);
      EXPECT_TRUE(read_file(entry.path()) == read_file(twin)) << v.name << " " << twin;
      ++files;
    }
    EXPECT_GE(files, 16);
    EXPECT_EQ(list_checkpoints(behind.path).size(), 4u);
  }
}

// The first checkpoint is not done until the fifth step begins, for which nobody waits.
TEST(SavedBehind, StepsGoOnMeanwhile) {
  Folder out;
  Started s = start({"f32", at::kFloat, {}, false}, out.path, {}, 3, 0, {.loop = {.save_total_limit = 2}}, much_room);
  std::promise<void> fifth;
  std::atomic<bool> came{false};
  s.run->begins_step = [&](int64_t step) {
    if (step == 5) fifth.set_value();
  };
  s.run->saved = [&](const fs::path& dir) {
    if (dir.filename() != "checkpoint-3") return;
    came = fifth.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  };
  s.run->trainer->run();
  EXPECT_TRUE(came);
  const auto left = list_checkpoints(out.path);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].first, 9);
}

TEST(SavedBehind, AFullDiskDoesNotEndTheRunButAtItsEnd) {
  for (const bool at_end : {false, true}) {
    Folder out;
    Started s =
        start({"f32", at::kFloat, {}, false}, out.path, {}, 5, 0, {.loop = {.save_retry_seconds = 0}}, much_room);
    s.run->save = [&, good = s.run->save](const fs::path& dir) {
      good(dir);
      if (dir.filename().string().find(at_end ? "checkpoint-10" : "checkpoint-5") != std::string::npos)
        fs::remove_all(dir);  // what is held cannot be written
    };
    if (at_end)
      test::expect_says(test::refusal(Fault::Io, [&] { s.run->trainer->run(); }), "the checkpoint of step 5 is whole");
    else
      EXPECT_EQ(s.run->trainer->run().last_checkpoint, out.path / "checkpoint-10");
    const auto left = list_checkpoints(out.path);
    ASSERT_EQ(left.size(), 1u);
    EXPECT_EQ(left[0].first, at_end ? 5 : 10);
    EXPECT_EQ(std::distance(fs::directory_iterator(out.path), fs::directory_iterator()), 1);  // nothing half-written
  }
}

// The run fails while a checkpoint is written: it comes to be all the same.
TEST(SavedBehind, IsWholeThoughTheRunFails) {
  Folder out;
  Started s = start({"f32", at::kFloat, {}, false}, out.path, {}, 3, 0, {}, much_room);
  s.run->begins_step = [&](int64_t step) { require(step < 4, Fault::Device, "the device is lost"); };
  test::refusal(Fault::Device, [&] { s.run->trainer->run(); });
  s.run->trainer.reset();
  ASSERT_EQ(list_checkpoints(out.path).size(), 1u);
  EXPECT_EQ(read_state(out.path / "checkpoint-3").step, 3);
}

TEST(Epochs, MaxEpochsEndsTheRunBeforeMaxSteps) {
  Folder out;
  Started s = start({"f32", at::kFloat, {}, false}, out.path, {}, 3, 0, {.loop = {.max_steps = 25, .max_epochs = 2}});
  EXPECT_EQ(s.run->trainer->run().step, 20);  // ten batches a pass
}

TEST(NanGuard, NamesTheLayerAndStops) {
  Folder out;
  Started s = start({"f32", at::kFloat, {}, false}, out.path, {}, 1);
  at::Tensor bad;
  s.run->model->visit([&](const std::string& name, Param& p) {
    if (name == "model.layers.1.mlp.down_proj.weight") bad = p.data;
  });
  const auto before = weights(*s.run->model);
  {
    c10::AutoGradMode no_grad(false);
    bad.fill_(3e38);
  }
  try {
    s.run->trainer->run();
    FAIL() << "must stop";
  } catch (const Error& e) {
    EXPECT_EQ(e.at.fault, Fault::Model);
    EXPECT_NE(std::string(e.what()).find("the output of layer 1 is not finite"), std::string::npos) << e.what();
  }
  const auto after = weights(*s.run->model);
  EXPECT_TRUE(at::equal(before.at("model.norm.weight"), after.at("model.norm.weight")));  // nothing was updated
  EXPECT_TRUE(list_checkpoints(out.path).empty());  // nor pushed out earlier checkpoints
}

// The child of KilledAtAnyMoment: trains and saves at every step until it is killed.
TEST(KillChild, Run) {
  const char* dir = std::getenv("APUS_KILL_DIR");
  if (!dir) GTEST_SKIP() << "run by Checkpoints.KilledAtAnyMoment";
  const auto all = list_checkpoints(dir);
  if (!all.empty() && all.back().first == 10) return;  // killed after its last save
  Started s = start({"f32", at::kFloat, {}, false}, dir, all.empty() ? fs::path() : all.back().second, 1, 0, {},
                    std::getenv("APUS_KILL_BEHIND") ? much_room : std::function<int64_t()>());
  s.run->trainer->run();
}

TEST(Checkpoints, KilledAtAnyMoment) {
  Folder out, whole;
  int kills = 0;
  for (int attempt = 0; attempt < 12; ++attempt) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::setenv("APUS_KILL_DIR", out.path.c_str(), 1);
      if (attempt % 2 == 0) ::setenv("APUS_KILL_BEHIND", "1", 1);
      ::setenv("LOG_LEVEL", "ERROR", 1);
      ::setenv("TMPDIR", whole.path.c_str(), 1);  // a killed child cleans nothing up
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, 1);
      ::execl("/proc/self/exe", "heavy_tests", "--gtest_filter=KillChild.Run", nullptr);
      ::_exit(127);
    }
    int status = 0;
    // Let it get one checkpoint further, then a moment that differs each time: between saves, or in the middle of one.
    const size_t had = list_checkpoints(out.path).size();
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    pid_t done = 0;
    while ((done = ::waitpid(child, &status, WNOHANG)) == 0 && list_checkpoints(out.path).size() <= had &&
           std::chrono::steady_clock::now() < give_up)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(attempt * 7 % 45));
    if (done == 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      ++kills;
    }
    for (const auto& [step, dir] : list_checkpoints(out.path)) {
      EXPECT_EQ(read_state(dir).step, step);
      EXPECT_NO_THROW(golden::owned_model(dir));
    }
    if (done != 0) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      break;
    }
  }
  EXPECT_GT(kills, 0);
  remove_leftovers(out.path);
  const auto all = list_checkpoints(out.path);
  ASSERT_FALSE(all.empty());
  ASSERT_EQ(all.back().first, 10);
  EXPECT_EQ(all.size(), 10u);
  EXPECT_EQ(std::distance(fs::directory_iterator(out.path), fs::directory_iterator()), 10);
  // Killed many times, and still the uninterrupted run to the bit.
  Started reference = start({"f32", at::kFloat, {}, false}, whole.path);
  reference.run->trainer->run();
  auto last = golden::owned_model(all.back().second);
  const auto a = weights(*reference.run->model), b = weights(*last);
  for (const auto& [name, value] : a) EXPECT_TRUE(at::equal(value, b.at(name))) << name;
}

}  // namespace
}  // namespace apus
