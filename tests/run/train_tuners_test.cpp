// SPDX-License-Identifier: Apache-2.0
// Tuners that need more of a training run than an adapter beside a layer: layers that are added, and first values by
// the gradients of some rows.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "checkpoint/adapter_config.h"
#include "tensor/safetensors.h"
#include "tests/refusal.h"
#include "tests/run/train_commands.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

class TrainTuners : public test::TrainCommands {};

// The added layers alone learn; what stood there stays, one place further on. A run goes on from its checkpoint.
TEST_F(TrainTuners, LlamaProAddsLayersAndTrainsThem) {
  const std::string rows = (island() / "heldout.jsonl").string();
  const auto layers = Json::parse(read_file(dir() / "model/config.json"))["num_hidden_layers"].get<int64_t>();
  const std::vector<std::string> words = {
      "--dataset",       rows,   "--tuner_type", "llamapro", "--llamapro_num_new_blocks", "1",
      "--learning_rate", "1e-2", "--save_steps", "1"};
  sft("grown", words);
  const fs::path first = dir() / "grown/checkpoint-1", last = dir() / "grown/checkpoint-2";
  EXPECT_EQ(Json::parse(read_file(last / "config.json"))["num_hidden_layers"], layers + 1);
  const TensorFolder base(dir() / "model"), grown(last);
  for (const std::string& name : base.names()) EXPECT_TRUE(at::equal(base.tensor(name), grown.tensor(name))) << name;
  const std::string added = str("model.layers.", layers, "."), copied = str("model.layers.", layers - 1, ".");
  const auto change = [&](const std::string& what) {
    return (grown.tensor(added + what) - base.tensor(copied + what)).abs().max().item<double>();
  };
  EXPECT_EQ(grown.names().size() - base.names().size(), [&] {
    size_t parts = 0;
    for (const std::string& name : base.names()) parts += name.starts_with(copied);
    return parts;
  }());
  EXPECT_GT(grown.tensor(added + "mlp.down_proj.weight").abs().max().item<double>(), 0);
  EXPECT_LT(grown.tensor(added + "mlp.down_proj.weight").abs().max().item<double>(), 0.05) << "it began as 0";
  EXPECT_GT(change("mlp.up_proj.weight"), 0);
  EXPECT_LT(change("mlp.up_proj.weight"), 0.05);
  // The same from the middle.
  std::vector<std::string> again = words;
  again.insert(again.end(), {"--resume_from_checkpoint", first.string()});
  sft("regrown", again);
  const TensorFolder regrown(dir() / "regrown/checkpoint-2");
  for (const std::string& name : grown.names())
    EXPECT_TRUE(at::equal(regrown.tensor(name), grown.tensor(name))) << name;
  test::expect_says(
      test::refusal(Fault::Usage,
                    [&] {
                      sft("odd", {"--dataset", rows, "--tuner_type", "llamapro", "--llamapro_num_new_blocks", "7"});
                    }),
      "--llamapro_num_new_blocks 7 does not divide");
}

// Its rows are all that is trained and saved, one by one and packed; a run goes on from its checkpoint.
TEST_F(TrainTuners, APromptIsTrainedBeforeEveryRow) {
  const auto train = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), {"--dataset", (island() / "heldout.jsonl").string(), "--tuner_type", "prompt_tuning",
                             "--num_virtual_tokens", "6", "--learning_rate", "0.1", "--save_steps", "1"});
    sft(out, more);
  };
  const auto rows_of = [&](const std::string& checkpoint) {
    const TensorFolder file(dir() / checkpoint, "adapter_model");
    EXPECT_EQ(file.names(), std::vector<std::string>{"prompt_embeddings"});
    return file.tensor("prompt_embeddings");
  };
  train("prompt", {});
  const at::Tensor first = rows_of("prompt/checkpoint-1"), last = rows_of("prompt/checkpoint-2");
  EXPECT_EQ(first.size(0), 6);
  EXPECT_GT((last - first).abs().amin(0).max().item<double>(), 0) << "each row learns";
  train("prompt-on", {"--resume_from_checkpoint", (dir() / "prompt/checkpoint-1").string()});
  EXPECT_TRUE(at::equal(rows_of("prompt-on/checkpoint-2"), last));
  train("prompt-packed", {"--packing", "true", "--max_length", "128"});
  const auto refused = [&](std::vector<std::string> more, const char* why) {
    test::expect_says(test::refusal(Fault::Usage, [&] { train("prompt-wrong", more); }), why);
  };
  refused({"--max_length", "6"}, "leaves no room behind the 6 words of the prompt");
  refused({"--predict_with_generate", "true"}, "goes without --predict_with_generate");
  refused({"--modules_to_save", "all-norm"}, "trains a prompt alone");
  refused({"--prompt_tuning_init", "text"}, "go together: give both or neither");
}

// Factors begin with gradients of the first rows, and what they add is taken out of the weights, so that nothing has
// changed before the first update. A run goes on from its checkpoint.
TEST_F(TrainTuners, LoraGaBeginsWithGradients) {
  const std::string rows = (island() / "heldout.jsonl").string();
  const auto train = [&](const std::string& out, const char* rate, std::vector<std::string> more) {
    more.insert(more.end(), {"--dataset", rows, "--init_weights", "lora-ga", "--lora_rank", "4", "--learning_rate",
                             rate, "--save_steps", "1"});
    sft(out, more);
    return TensorFolder(dir() / out / "checkpoint-2", "adapter_model");
  };
  const TensorFolder idle = train("ga-idle", "0", {}), taught = train("ga", "1e-2", {});
  double most = 0, learnt = 0;
  for (const std::string& name : idle.names()) {
    const at::Tensor all = idle.tensor(name), now = taught.tensor(name);
    const int64_t dim = name.ends_with("lora_A.weight") ? 0 : 1;
    ASSERT_EQ(all.size(dim), 8) << name << ": twice the rank";
    const at::Tensor own = all.narrow(dim, 0, 4), taken = all.narrow(dim, 4, 4);
    EXPECT_TRUE(at::equal(own, dim == 0 ? taken.neg() : taken)) << name;
    EXPECT_TRUE(at::equal(taken, now.narrow(dim, 4, 4))) << name << ": by the same rows";
    most = std::max(most, own.abs().max().item<double>());
    learnt = std::max(learnt, (now.narrow(dim, 0, 4) - own).abs().max().item<double>());
  }
  EXPECT_GT(most, 0.01);
  EXPECT_GT(learnt, 1e-4);
  const TensorFolder again =
      train("ga-again", "1e-2", {"--resume_from_checkpoint", (dir() / "ga/checkpoint-1").string()});
  for (const std::string& name : taught.names())
    EXPECT_TRUE(at::equal(again.tensor(name), taught.tensor(name))) << name;
}

// VeRA's vectors learn and its matrices stay, also in a run that goes on from its checkpoint.
TEST_F(TrainTuners, VeraTrainsTwoVectorsOfEachLayer) {
  const auto train = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), {"--dataset", (island() / "heldout.jsonl").string(), "--tuner_type", "vera", "--vera_rank",
                             "4", "--vera_dropout", "0.1", "--learning_rate", "1e-1", "--save_steps", "1"});
    sft(out, more);
    return TensorFolder(dir() / out / "checkpoint-2", "adapter_model");
  };
  const TensorFolder last = train("vera", {}), first(dir() / "vera/checkpoint-1", "adapter_model");
  const TensorFolder again = train("vera-again", {"--resume_from_checkpoint", (dir() / "vera/checkpoint-1").string()});
  for (const std::string& name : last.names()) {
    EXPECT_TRUE(at::equal(again.tensor(name), last.tensor(name))) << name;
    EXPECT_EQ(at::equal(first.tensor(name), last.tensor(name)), name.find("lambda") == std::string::npos) << name;
  }
}

}  // namespace
}  // namespace apus
