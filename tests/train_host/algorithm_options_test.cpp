// SPDX-License-Identifier: Apache-2.0
// Every algorithm is a command with its own options and defaults; and options say themselves what a resumed run does
// with them.
#include <gtest/gtest.h>

#include "cli/command.h"
#include "cli/train.h"

namespace apus {
namespace {

TrainRun parsed(const std::string& algorithm, const std::vector<std::string>& arguments) {
  TrainRun options(algorithm);
  OptionTable table = OptionTable::of(options);
  table.parse(arguments);
  options.resolve(table);
  return options;
}

TEST(Algorithms, AreCommandsOrChosenByOneWithTheirOwnOptions) {
  for (const auto& [name, info] : Registry<AlgorithmInfo>::of().all()) {
    const bool alone = info.command.empty();
    const Command* command = find_command(alone ? name : info.command);
    ASSERT_NE(command, nullptr) << name;
    const std::string choice = info.command == "rlhf" ? "--rlhf_type" : "--task_type";
    const auto words = alone ? std::vector<std::string>() : std::vector<std::string>{choice, name};
    const std::string help = command_help(*command, "apus", 100, words, "all");
    // A task of sft is one of --task_type's values there; the others have a summary.
    const std::string shown = info.command == "sft" ? name : info.summary.substr(0, 20);
    EXPECT_NE(help.find(shown), std::string::npos) << help;
    EXPECT_FALSE(info.examples.empty());
    OptionTable own;
    info.options().fields(own);
    for (const auto& option : own.options()) EXPECT_NE(help.find("--" + option->name), std::string::npos) << name;
  }
  EXPECT_EQ(find_command("pt")->make()->table.json()["loss_scale"], "all");
  EXPECT_EQ(find_command("sft")->make()->table.json()["loss_scale"], "default");
  EXPECT_EQ(parsed("pt", {}).prompt.use_chat_template, false);
  EXPECT_EQ(parsed("pt", {"--use_chat_template", "true"}).prompt.use_chat_template, true);
  EXPECT_THROW(TrainRun("of nothing"), Error);
}

TEST(Algorithms, OfOneCommandAreChosenByAnOption) {
  const Command& rlhf = *find_command("rlhf");
  const std::string help = command_help(rlhf, "apus", 100);
  for (const std::string& name : algorithms_of("rlhf"))
    EXPECT_NE(help.find("--rlhf_type " + name), std::string::npos) << help;
  EXPECT_EQ(rlhf.make({"--rlhf_type", "dpo"})->table.json()["rlhf_type"], "dpo");
  EXPECT_EQ(rlhf.make({"--model", "m", "--rlhf_type=dpo", "--gradient_checkpointing"})->table.json()["beta"], 0.1);
  EXPECT_EQ(rlhf.make({})->table.json()["rlhf_type"], "dpo");
  try {
    rlhf.make({"--rlhf_type", "nonsense"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.at.fault, Fault::Usage);
    for (const std::string& name : algorithms_of("rlhf"))
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
  }
}

TEST(Algorithms, RefuseAReferenceThatIsNotUsed) {
  const auto refused = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--model", "m", "--dataset", "d"});
    TrainRun options("dpo");
    OptionTable table = OptionTable::of(options);
    table.parse(more);
    try {
      options.own.check(options.loop, 1);
      options.reference.check(options.own.uses_reference());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused({"--ref_model", "other"}), "");
  EXPECT_EQ(refused({"--ref_model", "other", "--reference_free", "true"}), "") << "it is forgotten, with a word";
  EXPECT_NE(refused({"--loss_type", "sft", "--precompute_ref_log_probs", "true"}).find("compared with nothing"),
            std::string::npos);
  EXPECT_NE(refused({"--loss_type", "sigmoid", "sft", "--loss_weights", "1"}).find("one for each"), std::string::npos);
  EXPECT_EQ(refused({"--loss_type", "sigmoid", "bco_pair", "sft", "--loss_weights", "0.8", "0.2", "1"}), "");
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
  const TrainRun lora = parsed("sft", {"--lora_rank", "4"});
  const std::set<std::string> of_any_tuner = {"tuner_type",
                                              "per_device_train_batch_size",
                                              "data_seed",
                                              "streaming",
                                              "packing",
                                              "train_dataloader_shuffle",
                                              "ref_adapters",
                                              "task_type",
                                              "mtp_num_layers",
                                              "grad_reduce_in_fp32",
                                              "galore_cos_threshold",
                                              "galore_gamma_proj",
                                              "galore_proj_type",
                                              "galore_quantization",
                                              "galore_queue_size",
                                              "galore_rank",
                                              "galore_target_modules",
                                              "galore_update_proj_gap",
                                              "galore_with_embedding",
                                              "lisa_activated_layers",
                                              "lisa_step_interval",
                                              "optim_target_modules",
                                              "use_galore"};
  std::set<std::string> of_lora = {
      "lora_rank",      "lora_alpha",   "use_rslora",      "init_weights",      "use_dora",
      "target_modules", "target_regex", "modules_to_save", "target_parameters", "trainable_token_indices",
      "freeze_llm",     "freeze_vit",   "freeze_aligner"};
  of_lora.insert(of_any_tuner.begin(), of_any_tuner.end());
  EXPECT_EQ(keys(lora.exact), of_lora);
  EXPECT_EQ(lora.exact["lora_rank"], 4);
  EXPECT_EQ(keys(lora.noted), (std::set<std::string>{"tensor_model_parallel_size",
                                                     "sequence_parallel",
                                                     "expert_model_parallel_size",
                                                     "pipeline_model_parallel_size",
                                                     "decoder_first_pipeline_num_layers",
                                                     "decoder_last_pipeline_num_layers",
                                                     "pipeline_model_parallel_layout",
                                                     "virtual_pipeline_model_parallel_size",
                                                     "lr_scheduler_type",
                                                     "lr_scheduler_kwargs",
                                                     "warmup_steps",
                                                     "warmup_ratio",
                                                     "weight_decay",
                                                     "adam_beta1",
                                                     "adam_beta2",
                                                     "adam_epsilon",
                                                     "optim_args",
                                                     "lorap_lr_ratio",
                                                     "lora_dropout",
                                                     "neftune_noise_alpha",
                                                     "label_smoothing_factor",
                                                     "enable_dft_loss",
                                                     "enable_asft_loss",
                                                     "enable_eaft_loss",
                                                     "asft_alpha",
                                                     "eaft_alpha",
                                                     "mtp_loss_scaling_factor",
                                                     "fp8_format",
                                                     "fp8_recipe",
                                                     "clip_in_backward",
                                                     "router_aux_loss_coef",
                                                     "moe_expert_capacity_factor",
                                                     "moe_token_drop_policy",
                                                     "galore_scale",
                                                     "vera_dropout"}));
  EXPECT_EQ(keys(parsed("sft", {"--tuner_type", "full"}).exact), of_any_tuner);
}

}  // namespace
}  // namespace apus
