// SPDX-License-Identifier: Apache-2.0
// The flags of Megatron-SWIFT said in ours; what cannot be had is refused, all at once.
#include "cli/megatron.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/nearest.h"
#include "models/spec/presets.h"
#include "tests/folder.h"
#include "tests/refusal.h"

namespace apus {
namespace {

using Flags = std::vector<std::string>;

// What a flag became: its values, joined; "absent".
std::string became(const OwnFlags& own, const std::string& name) {
  const auto at = std::find(own.arguments.begin(), own.arguments.end(), "--" + name);
  if (at == own.arguments.end()) return "absent";
  const auto end =
      std::find_if(at + 1, own.arguments.end(), [](const std::string& word) { return word.starts_with("--"); });
  return join(Flags(at + 1, end), " ");
}

// A round of 4 updates of 8 answers, on 2 ranks.
TEST(Megatron, RoundsAreCountedInUpdates) {
  const Flags grpo = {"--model", "m", "--rlhf_type", "grpo", "--global_batch_size", "8", "--steps_per_generation", "4"};
  const OwnFlags own = own_flags(grpo, {.ranks = 2, .command = "rlhf"});
  EXPECT_EQ(became(own, "gradient_accumulation_steps"), "4");
  EXPECT_EQ(became(own, "steps_per_generation"), "16");
  EXPECT_EQ(std::count(own.arguments.begin(), own.arguments.end(), "--steps_per_generation"), 1);
  EXPECT_EQ(became(own_flags({"--model", "m", "--rlhf_type", "grpo"}, {.ranks = 2, .command = "rlhf"}),
                   "steps_per_generation"),
            "absent");
}

TEST(Megatron, BatchesAndRates) {
  const OwnFlags own = own_flags({"--model",
                                  "m",
                                  "--dataset",
                                  "a.jsonl",
                                  "b.jsonl",
                                  "--micro_batch_size",
                                  "2",
                                  "--global_batch_size=32",
                                  "--lr",
                                  "1e-4",
                                  "--min_lr",
                                  "1e-5",
                                  "--lr_warmup_fraction",
                                  "0.05",
                                  "--train_iters",
                                  "100",
                                  "--save",
                                  "out",
                                  "--clip_grad",
                                  "0.5",
                                  "--moe_aux_loss_coeff",
                                  "1e-3",
                                  "--target_modules",
                                  "linear_qkv",
                                  "linear_fc2",
                                  "in_proj"},
                                 {.ranks = 4});
  EXPECT_EQ(became(own, "model"), "m");
  EXPECT_EQ(became(own, "dataset"), "a.jsonl b.jsonl");
  EXPECT_EQ(became(own, "per_device_train_batch_size"), "2");
  EXPECT_EQ(became(own, "gradient_accumulation_steps"), "4");  // 32 rows by 4 processes, 2 at a time
  EXPECT_EQ(became(own, "learning_rate"), "1e-4");
  EXPECT_EQ(became(own, "lr_scheduler_type"), "cosine_with_min_lr");
  EXPECT_EQ(became(own, "lr_scheduler_kwargs"), "{\"min_lr\": 1e-5}");
  EXPECT_EQ(became(own, "warmup_ratio"), "0.05");
  EXPECT_EQ(became(own, "max_steps"), "100");
  EXPECT_EQ(became(own, "output_dir"), "out");
  EXPECT_EQ(became(own, "max_grad_norm"), "0.5");
  EXPECT_EQ(became(own, "router_aux_loss_coef"), "1e-3");
  EXPECT_EQ(became(own, "target_modules"), "q_proj k_proj v_proj down_proj in_proj");
  EXPECT_EQ(became(own, "tuner_type"), "full");
  EXPECT_EQ(became(own, "deepspeed"), "zero1");  // its optimizer is distributed unless it is told otherwise
  EXPECT_EQ(became(own, "recompute_modules"), "core_attn");
  EXPECT_EQ(became(own, "sequence_parallel_size"), "absent");
}

TEST(Megatron, AMeshIsWhoReadsTheSameRows) {
  const OwnFlags own = own_flags({"--tensor_model_parallel_size", "2", "--context_parallel_size", "2",
                                  "--sequence_parallel", "true", "--global_batch_size", "8", "--tuner_type", "lora"},
                                 {.ranks = 8});
  EXPECT_EQ(became(own, "sequence_parallel_size"), "4");
  EXPECT_EQ(became(own, "deepspeed"), "zero3");
  EXPECT_EQ(became(own, "gradient_accumulation_steps"), "4");  // two groups of four
  EXPECT_EQ(became(own, "tuner_type"), "lora");
  ASSERT_FALSE(own.notes.empty());
  EXPECT_NE(own.notes[0].find("4 processes share out the tokens of each row"), std::string::npos) << own.notes[0];
  // Processes that hold other experts read other rows.
  const OwnFlags experts = own_flags({"--expert_model_parallel_size", "4", "--global_batch_size", "8"}, {.ranks = 4});
  EXPECT_EQ(became(experts, "sequence_parallel_size"), "absent");
  EXPECT_EQ(became(experts, "deepspeed"), "zero3");
  EXPECT_EQ(became(experts, "gradient_accumulation_steps"), "2");
  // Context alone leaves weights whole; not known processes are as many as the mesh has.
  const OwnFlags context = own_flags({"--context_parallel_size", "2"}, {.ranks = 0});
  EXPECT_EQ(became(context, "deepspeed"), "zero1");
  EXPECT_EQ(became(context, "gradient_accumulation_steps"), "16");
}

// Of models that can be cut so; others, and other algorithms, go by rows.
TEST(Megatron, AMeshIsTheRealOneWhereTheModelCanBeCut) {
  const ModelFacts mixture = model_facts(preset_config("tiny-moe")), dense = model_facts(preset_config("tiny"));
  const Flags flags{"--tensor_model_parallel_size", "2", "--expert_model_parallel_size", "4",
                    "--global_batch_size",          "8"};
  const OwnFlags own = own_flags(flags, {.ranks = 4, .model = &mixture});
  EXPECT_EQ(became(own, "tensor_model_parallel_size"), "2");
  EXPECT_EQ(became(own, "expert_model_parallel_size"), "2");  // and their matrices are halved: a quarter on each
  EXPECT_EQ(became(own, "deepspeed"), "zero1");
  EXPECT_EQ(became(own, "sequence_parallel_size"), "absent");
  EXPECT_EQ(became(own, "gradient_accumulation_steps"), "4");
  EXPECT_NE(join(own.notes, "\n").find("the experts lie on 2 ranks, and 2 share out their matrices"), std::string::npos)
      << join(own.notes, "\n");
  // Megatron's sequence parallelism is of tensor ranks, and asks for nothing without them.
  Flags residual = flags, alone{"--sequence_parallel", "true", "--context_parallel_size", "2"};
  residual.insert(residual.end(), {"--sequence_parallel", "true"});
  EXPECT_EQ(became(own_flags(residual, {.ranks = 4, .model = &mixture}), "sequence_parallel"), "true");
  EXPECT_EQ(became(own, "sequence_parallel"), "absent");
  EXPECT_EQ(became(own_flags(alone, {.ranks = 2, .model = &mixture}), "sequence_parallel"), "absent");
  EXPECT_EQ(join(own_flags(alone, {.ranks = 2, .model = &mixture}).notes, "").find("--sequence_parallel:"),
            std::string::npos);
  EXPECT_NE(join(own_flags(residual, {.ranks = 4, .model = &dense}).notes, "\n").find("--sequence_parallel: no effect"),
            std::string::npos);
  Flags whole = flags;
  whole.insert(whole.end(), {"--expert_tensor_parallel_size", "2", "--context_parallel_size", "2"});
  const OwnFlags more = own_flags(whole, {.ranks = 8, .model = &mixture});
  EXPECT_EQ(became(more, "expert_model_parallel_size"), "4");
  EXPECT_EQ(became(more, "sequence_parallel_size"), "2");
  EXPECT_EQ(became(own_flags(flags, {.ranks = 4, .model = &dense}), "deepspeed"), "zero3");  // it has no experts
  const OwnFlags reward = own_flags({"--tensor_model_parallel_size", "2", "--rlhf_type", "rm"},
                                    {.ranks = 2, .command = "rlhf", .model = &dense});
  EXPECT_EQ(became(reward, "tensor_model_parallel_size"), "2");  // scores are learnt by parts too
  const OwnFlags dpo = own_flags({"--tensor_model_parallel_size", "2", "--rlhf_type", "dpo"},
                                 {.ranks = 2, .command = "rlhf", .model = &dense});
  EXPECT_EQ(became(dpo, "tensor_model_parallel_size"), "2");
  const OwnFlags muon =
      own_flags({"--tensor_model_parallel_size", "2", "--optimizer", "muon"}, {.ranks = 2, .model = &dense});
  EXPECT_EQ(became(muon, "deepspeed"), "absent");
  EXPECT_EQ(became(muon, "sequence_parallel_size"), "2");
  test::expect_says(test::refusal(Fault::Usage, [&] { own_flags(flags, {.ranks = 6}); }),
                    "start with NPROC_PER_NODE=4");
}

TEST(Megatron, StagesAreRealOnesWhereTheModelHasThem) {
  const ModelFacts dense = model_facts(preset_config("tiny")), mixture = model_facts(preset_config("tiny-moe"));
  const Flags flags{"--pipeline_model_parallel_size",      "2", "--tensor_model_parallel_size", "2",
                    "--decoder_first_pipeline_num_layers", "1", "--global_batch_size",          "8"};
  const OwnFlags own = own_flags(flags, {.ranks = 8, .model = &dense});
  EXPECT_EQ(became(own, "pipeline_model_parallel_size"), "2");
  EXPECT_EQ(became(own, "tensor_model_parallel_size"), "2");
  EXPECT_EQ(became(own, "decoder_first_pipeline_num_layers"), "1");
  EXPECT_EQ(became(own, "deepspeed"), "zero1");
  EXPECT_EQ(became(own, "sequence_parallel_size"), "absent");
  EXPECT_EQ(became(own, "gradient_accumulation_steps"), "4");
  const OwnFlags letters =
      own_flags({"--pipeline_model_parallel_size", "2", "--pipeline_model_parallel_layout", "Et|t*3L"},
                {.ranks = 2, .model = &dense});
  EXPECT_EQ(became(letters, "pipeline_model_parallel_layout"), "Et|t*3L");
  for (const Flags& pieces :
       {Flags{"--virtual_pipeline_model_parallel_size", "2"}, Flags{"--num_virtual_stages_per_pipeline_rank", "2"},
        Flags{"--num_layers_per_virtual_pipeline_stage", "1"}}) {
    Flags all{"--pipeline_model_parallel_size", "2"};
    all.insert(all.end(), pieces.begin(), pieces.end());
    EXPECT_EQ(became(own_flags(all, {.ranks = 2, .model = &dense}), "virtual_pipeline_model_parallel_size"), "2");
  }
  test::expect_says(
      test::refusal(Fault::Usage,
                    [&] {
                      own_flags({"--pipeline_model_parallel_size", "2", "--num_layers_per_virtual_pipeline_stage", "3"},
                                {.ranks = 2, .model = &dense});
                    }),
      "the 4 layers of the model are no multiple of that");
  // More layers than the model has: by rows, and why is said.
  const OwnFlags many = own_flags({"--pipeline_model_parallel_size", "2", "--decoder_first_pipeline_num_layers", "25"},
                                  {.ranks = 2, .model = &dense});
  EXPECT_EQ(became(many, "pipeline_model_parallel_size"), "absent");
  EXPECT_EQ(became(many, "decoder_first_pipeline_num_layers"), "absent");
  EXPECT_EQ(became(many, "sequence_parallel_size"), "2");
  EXPECT_NE(join(many.notes, "\n").find("of 4 layers to the other 1 stages"), std::string::npos)
      << join(many.notes, "\n");
  EXPECT_NE(join(many.notes, "\n").find("--decoder_first_pipeline_num_layers: no effect here"), std::string::npos);
  // What stages do not know.
  const Flags stages{"--pipeline_model_parallel_size", "2"};
  const auto with = [&](const Flags& more) {
    Flags all = stages;
    all.insert(all.end(), more.begin(), more.end());
    return became(own_flags(all, {.ranks = 2, .command = "rlhf", .model = &dense}), "pipeline_model_parallel_size");
  };
  EXPECT_EQ(with({"--rlhf_type", "dpo"}), "2");
  EXPECT_EQ(with({"--rlhf_type", "kto"}), "absent");
  EXPECT_EQ(with({"--rlhf_type", "dpo", "--optimizer_cpu_offload", "true"}), "absent");
  EXPECT_EQ(with({"--rlhf_type", "dpo", "--precompute_ref_log_probs", "true"}), "absent");
}

// As many processes share the tokens of a row as the algorithm and the heads of attention allow.
TEST(Megatron, ProcessesThatCannotShareARowReadTheirOwn) {
  const std::vector<std::string> mesh = {"--tensor_model_parallel_size", "2", "--context_parallel_size", "4",
                                         "--micro_batch_size",           "1", "--global_batch_size",     "16"};
  ModelFacts small;
  small.heads = 4, small.uncut = small.sharing.stay = "of a test";
  const auto with = [&](std::vector<std::string> flags, const std::string& command) {
    flags.insert(flags.end(), mesh.begin(), mesh.end());
    return own_flags(flags, {.ranks = 8, .command = command, .model = &small});
  };
  const OwnFlags dpo = with({"--rlhf_type", "dpo"}, "rlhf"), gkd = with({"--rlhf_type", "gkd"}, "rlhf"),
                 embedding = with({"--task_type", "embedding"}, "sft");
  EXPECT_EQ(became(dpo, "sequence_parallel_size"), "4");
  EXPECT_EQ(became(dpo, "gradient_accumulation_steps"), "8");
  EXPECT_EQ(became(embedding, "sequence_parallel_size"), "4");
  EXPECT_EQ(became(gkd, "sequence_parallel_size"), "absent");
  EXPECT_EQ(became(gkd, "gradient_accumulation_steps"), "2");
  EXPECT_EQ(became(gkd, "deepspeed"), "zero3");
}

TEST(Megatron, AnExportHasNothingToConvert) {
  const OwnFlags model = own_export_flags({"--model", "m", "--to_mcore", "true", "--tensor_model_parallel_size", "2",
                                           "--test_convert_precision", "true", "--output_dir", "o"});
  EXPECT_EQ(join(model.arguments, " "), "--model m --output_dir o --to_hf true");
  EXPECT_NE(join(model.notes, "\n").find("nothing is converted; the files are written anew"), std::string::npos);
  EXPECT_NE(join(model.notes, "\n").find("--tensor_model_parallel_size, --test_convert_precision: no effect here"),
            std::string::npos);
  const OwnFlags merged =
      own_export_flags({"--mcore_adapter", "a", "--mcore_model", "m", "--merge_lora", "true", "--to_hf", "true"});
  EXPECT_EQ(join(merged.arguments, " "), "--adapters a --model m --merge_lora true");
  const OwnFlags fp8 = own_export_flags({"--model", "m", "--to_hf", "true", "--fp8_recipe", "blockwise", "--fp8_format",
                                         "e4m3", "--mtp_num_layers", "1"});
  EXPECT_EQ(join(fp8.arguments, " "), "--model m --quant_method fp8");
  test::expect_says(test::refusal(Fault::Usage,
                                  [] {
                                    own_export_flags({"--to_hf", "true", "--fp8_recipe", "mxfp8"});
                                  }),
                    "--fp8_recipe mxfp8 is not possible");
}

TEST(Megatron, AFileIsReadAsFlags) {
  test::Folder folder;
  const std::string file = (folder.path / "run.yaml").string();
  std::ofstream(file) << "ENV:\n  APUS_TEST_OF_FILES: 'here'\nlr: 1e-4\ndataset:\n  - a\n  - b\n";
  EXPECT_EQ(without_file({file, "--lr", "2e-4"}), (Flags{"--lr", "1e-4", "--dataset", "a", "b", "--lr", "2e-4"}));
  EXPECT_STREQ(std::getenv("APUS_TEST_OF_FILES"), "here");
  EXPECT_EQ(without_file({"--lr", "1"}), (Flags{"--lr", "1"}));
}

TEST(Megatron, NarrowNumbersAndHeadsThatGuess) {
  const OwnFlags own = own_flags({"--fp8_recipe", "blockwise", "--fp8_format", "e4m3", "--fp8_param_gather", "true",
                                  "--exp_avg_dtype", "bf16", "--exp_avg_sq_dtype", "bf16", "--mtp_num_layers", "1"},
                                 {});
  EXPECT_EQ(became(own, "fp8_recipe"), "blockwise");
  EXPECT_EQ(became(own, "fp8_format"), "e4m3");
  EXPECT_EQ(became(own, "fp8_param_gather"), "absent");
  EXPECT_EQ(became(own, "optim"), "adamw_8bit");
  EXPECT_EQ(became(own, "exp_avg_dtype"), "absent");
  EXPECT_EQ(became(own, "mtp_num_layers"), "1");
  test::expect_says(join(own.notes, "\n"), "--optim adamw_8bit");
  EXPECT_EQ(became(own_flags({"--exp_avg_dtype", "fp32"}, {}), "optim"), "adamw_torch");
}

TEST(Megatron, WhatHasNothingToDoIsSaidAndWhatCannotBeIsRefused) {
  const OwnFlags own = own_flags({"--cross_entropy_loss_fusion", "true", "--attention_backend", "flash", "--finetune",
                                  "true", "--no_save_optim", "true", "--no_save_rng", "true", "--recompute_granularity",
                                  "full", "--recompute_method", "uniform", "--recompute_num_layers", "1"},
                                 {});
  EXPECT_EQ(became(own, "cross_entropy_loss_fusion"), "absent");
  EXPECT_EQ(became(own, "save_only_model"), "true");
  EXPECT_EQ(became(own, "recompute_granularity"), "full");
  EXPECT_EQ(became(own, "recompute_modules"), "absent");
  EXPECT_EQ(became(own, "recompute_method"), "uniform");
  EXPECT_NE(join(own.notes, "\n").find("--attention_backend, --cross_entropy_loss_fusion: no effect here"),
            std::string::npos)
      << join(own.notes, "\n");
  const std::string refused = test::refusal(Fault::Usage, [] {
    own_flags({"--fp4_format", "e2m1", "--moe_z_loss_coeff", "1e-3", "--micro_batch_size", "3", "--finetune", "false",
               "--tensor_model_parallel_size", "two"},
              {});
  });
  for (const char* says : {"--fp4_format is not possible", "--moe_z_loss_coeff is not possible",
                           "--global_batch_size 16 is no multiple of the 3 rows", "--resume_from_checkpoint",
                           "--tensor_model_parallel_size must be a number above 0, it is 'two'"})
    EXPECT_NE(refused.find(says), std::string::npos) << refused;
  test::expect_says(test::refusal(Fault::Usage,
                                  [] {
                                    own_flags({"--pipeline_model_parallel_size", "4"}, {.ranks = 6});
                                  }),
                    "start with NPROC_PER_NODE=4");
}

}  // namespace
}  // namespace apus
