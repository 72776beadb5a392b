// SPDX-License-Identifier: Apache-2.0
// Every algorithm is a command with its own options and defaults; and options say themselves what a resumed run does
// with them.
#include <gtest/gtest.h>

#include "cli/command.h"
#include "cli/train.h"

namespace apus {
namespace {

TrainCommandOptions parsed(const std::string& algorithm, const std::vector<std::string>& arguments) {
  TrainCommandOptions options(algorithm);
  OptionTable table = OptionTable::of(options);
  table.parse(arguments);
  options.resolve(table);
  return options;
}

TEST(Algorithms, AreCommandsWithTheirOwnOptions) {
  for (const auto& [name, info] : Registry<AlgorithmInfo>::of().all()) {
    const Command* command = find_command(name);
    ASSERT_NE(command, nullptr) << name;
    const std::string help = command_help(*command, "apus", 100);
    EXPECT_NE(help.find(info.summary.substr(0, 20)), std::string::npos) << help;
    OptionTable own;
    info.options().fields(own);
    for (const auto& option : own.options()) EXPECT_NE(help.find("--" + option->name), std::string::npos) << name;
  }
  EXPECT_EQ(find_command("pt")->make()->table.json()["loss_scale"], "all");
  EXPECT_EQ(find_command("sft")->make()->table.json()["loss_scale"], "default");
  EXPECT_EQ(parsed("pt", {}).use_chat_template, false);
  EXPECT_EQ(parsed("pt", {"--use_chat_template", "true"}).use_chat_template, true);
  EXPECT_THROW(TrainCommandOptions("of nothing"), Error);
}

TEST(Algorithms, AreGivenTheirOptionsAndNoOthers) {
  struct Mine {
    double beta = 0.1;
    void fields(OptionTable& v) { v("beta", beta, "strength").noted(); }
  };
  struct Other {
    void fields(OptionTable&) {}
  };
  const AlgorithmOptions options = AlgorithmOptions::of<Mine>();
  OptionTable table;
  options.fields(table);
  table.parse({"--beta", "0.5"});
  EXPECT_EQ(options.as<Mine>().beta, 0.5);
  EXPECT_THROW(options.as<Other>(), Error);
}

TEST(Resuming, ComparesWhatTheOptionsSay) {
  const auto keys = [](const Json& settings) {
    std::set<std::string> names;
    for (const auto& [name, value] : settings.items()) names.insert(name);
    return names;
  };
  const TrainCommandOptions lora = parsed("sft", {"--lora_rank", "4"});
  EXPECT_EQ(keys(lora.exact),
            (std::set<std::string>{"tuner_type", "per_device_train_batch_size", "lora_rank", "lora_alpha", "use_rslora",
                                   "init_weights", "use_dora", "target_modules", "target_regex", "modules_to_save",
                                   "data_seed", "streaming", "packing", "train_dataloader_shuffle"}));
  EXPECT_EQ(lora.exact["lora_rank"], 4);
  EXPECT_EQ(keys(lora.noted),
            (std::set<std::string>{"lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio",
                                   "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "optim_args",
                                   "lorap_lr_ratio", "lora_dropout", "neftune_noise_alpha", "label_smoothing_factor",
                                   "enable_dft_loss", "router_aux_loss_coef"}));
  EXPECT_EQ(keys(parsed("sft", {"--tuner_type", "full"}).exact),
            (std::set<std::string>{"tuner_type", "per_device_train_batch_size", "data_seed", "streaming", "packing",
                                   "train_dataloader_shuffle"}));
}

}  // namespace
}  // namespace apus
