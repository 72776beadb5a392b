// SPDX-License-Identifier: Apache-2.0
// Several updates made of one collection: counted, saved and resumed apart from the rows they were made of.
#include "tests/train/training.h"

namespace apus {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using golden::Folder;
using golden::TestRun;

// Three passes over each collection.
class ThreePasses final : public Algorithm {
 public:
  explicit ThreePasses(bool by_policy) : by_policy_(by_policy) {}
  std::vector<Update> collect(Actors& actors, std::vector<Samples> micro_batches) override {
    ++collected;
    return std::vector<Update>(3, Algorithm::collect(actors, std::move(micro_batches))[0]);
  }
  int64_t updates_per_collection() const override { return 3; }
  bool collects_by_policy() const override { return by_policy_; }
  double count(const Batch& batch) const override { return sft_.count(batch); }
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override { return sft_.loss(actors, batch, forward); }
  int collected = 0;

 private:
  const bool by_policy_;
  Sft sft_{{}};
};

struct PassesRun {
  explicit PassesRun(const fs::path& out, const fs::path& from = {}, bool by_policy = false, int64_t save_steps = 1)
      : algorithm(by_policy) {
    const Case c("train_qwen2");
    Json hyper = c.json["runs"]["adamw_hf_trainer_groups"]["hyper"];
    hyper["total_steps"] = 8;
    TrainerOptions options{.loop = {.save_steps = static_cast<double>(save_steps)}, .output_dir = out};
    options.forward.neftune_alpha = 5;  // its noise is a function of the step
    run = std::make_unique<TestRun>(golden::owned_model(from.empty() ? c.dir / "checkpoint" : from), hyper,
                                    golden::train_batches(c), options, OptimizerSpec{}, SftOptions{}, &algorithm);
    golden::save_whole_models(*run, c.dir / "checkpoint", at::kFloat);
    if (!from.empty()) run->trainer->resume(read_state(from), {});
  }
  ThreePasses algorithm;
  std::unique_ptr<TestRun> run;
};

TEST(Updates, OfOneCollectionAreCountedApartFromItsRows) {
  Folder out;
  PassesRun three(out.path);
  const TrainResult result = three.run->trainer->run();
  EXPECT_EQ(result.step, 8);
  EXPECT_EQ(three.algorithm.collected, 3);
  const Case c("train_qwen2");
  size_t rows = 0;
  for (size_t i = 0; i < 3; ++i) rows += golden::train_batches(c)[i].lengths.size();
  EXPECT_EQ(result.rows, static_cast<int64_t>(rows));
  const RunState last = read_state(out.path / "checkpoint-8"), whole = read_state(out.path / "checkpoint-6");
  EXPECT_EQ(last.step, 8);
  EXPECT_EQ(last.progress["updates_of_collection"], 2);
  EXPECT_EQ(last.progress["rows"], whole.progress["rows"]) << "those of the collection at hand come when it is over";
  EXPECT_FALSE(whole.progress.contains("updates_of_collection"));
}

TEST(Updates, AreResumedInTheMiddleOfACollection) {
  Folder whole, again;
  PassesRun uninterrupted(whole.path);
  const Json first = uninterrupted.run->trainer->run().log_history;
  for (const int at : {2, 3, 4}) {
    PassesRun resumed(again.path, whole.path / str("checkpoint-", at));
    const TrainResult second = resumed.run->trainer->run();
    golden::expect_same(*uninterrupted.run, *resumed.run);
    EXPECT_EQ(first, second.log_history) << at;
    EXPECT_EQ(resumed.algorithm.collected, at == 3 ? 2 : at == 2 ? 3 : 2) << at;
  }
}

TEST(Updates, OfWhatCannotBeCollectedAgainAreSavedTogether) {
  Folder out;
  PassesRun run(out.path, {}, /*by_policy=*/true, /*save_steps=*/2);
  run.run->trainer->run();
  std::vector<int64_t> steps;
  for (const auto& [step, dir] : list_checkpoints(out.path)) steps.push_back(step);
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 6, 8}));  // due after 2, 4 and 6; and at the end
  EXPECT_FALSE(read_state(out.path / "checkpoint-8").progress.contains("updates_of_collection"));
}

TEST(Updates, GiveTheScheduleItsLength) {
  Folder out;
  PassesRun run(out.path);
  TrainerOptions options{.loop = {.num_train_epochs = 2, .gradient_accumulation_steps = 4}, .output_dir = out.path};
  const Case c("train_qwen2");
  golden::FixedSource source(golden::train_batches(c));
  const auto comm = lone_comm();
  const Trainer trainer({.algorithm = run.algorithm,
                         .actors = {.policy = *run.run->model},
                         .optimizer = *run.run->optimizer,
                         .schedule = [](int64_t) { return [](int64_t) { return 1.0; }; },
                         .base_lr = 1,
                         .train = source,
                         .data_ranks = *comm},
                        options);
  EXPECT_EQ(trainer.max_steps(), 2 * 3 * 3);  // passes, collections of 10 micro-batches, updates of each
}

}  // namespace
}  // namespace apus
