// SPDX-License-Identifier: Apache-2.0
// Commands: what they accept, and the program as a user starts it.
#include "cli/command.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>

#include "base/files.h"
#include "base/nearest.h"
#include "cli/deploy.h"
#include "cli/export.h"
#include "cli/infer.h"
#include "cli/init.h"
#include "cli/score.h"
#include "cli/train.h"
#include "tests/shell.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

using test::program;
using test::shell;
using Result = test::ShellResult;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Commands, EveryOneExplainsItself) {
  const auto commands = all_commands();
  ASSERT_GE(commands.size(), 4u);
  for (const Command* command : commands) {
    const std::string help = command_help(*command, "apus", 80, {}, "all");
    EXPECT_FALSE(command->info.summary.empty());
    EXPECT_FALSE(command->info.examples.empty()) << command->info.name;
    const auto instance = command->make();
    for (const auto& option : instance->table.options()) {
      if (option->is_hidden) continue;
      EXPECT_TRUE(has(help, "--" + option->name)) << command->info.name;
      EXPECT_TRUE(!option->help.empty() || !option->refusal.empty() || !option->no_effect.empty())
          << command->info.name << " " << option->name;
    }
  }
}

TEST(Commands, NoNameIsDescribedTwice) {
  for (const Command* command : all_commands()) {
    try {
      command->make()->table.parse({"--ignore_args_error", "true"});
    } catch (const Error& error) {
      EXPECT_EQ(error.at.fault, Fault::Usage) << command->info.name << ": " << error.what();
    }
  }
}

TEST(Commands, UnderscoresAreHyphens) {
  EXPECT_EQ(find_command("in_fer"), nullptr);
  EXPECT_EQ(find_command("infer"), find_command("infer"));
  ASSERT_NE(find_command("infer"), nullptr);
}

TEST(Commands, BaseFlagsOfOtherProgramsAreLegalOrRefusedNeverUnknown) {
  // Flags that any command of the program whose dialect this is accepts.
  const std::vector<std::string> base = {"tuner_backend",
                                         "tuner_type",
                                         "adapters",
                                         "external_plugins",
                                         "seed",
                                         "model_kwargs",
                                         "enable_npu_model_patch",
                                         "load_args",
                                         "load_data_args",
                                         "packing",
                                         "packing_length",
                                         "packing_num_proc",
                                         "packing_strategy",
                                         "lazy_tokenize",
                                         "use_hf",
                                         "hub_token",
                                         "ddp_timeout",
                                         "ddp_backend",
                                         "ignore_args_error",
                                         "use_swift_lora",
                                         "use_ray",
                                         "ray_exp_name",
                                         "device_groups",
                                         "model",
                                         "model_type",
                                         "model_revision",
                                         "task_type",
                                         "torch_dtype",
                                         "attn_impl",
                                         "experts_impl",
                                         "new_special_tokens",
                                         "num_labels",
                                         "problem_type",
                                         "rope_scaling",
                                         "max_model_len",
                                         "device_map",
                                         "max_memory",
                                         "local_repo_path",
                                         "init_strategy",
                                         "dataset",
                                         "val_dataset",
                                         "cached_dataset",
                                         "cached_val_dataset",
                                         "split_dataset_ratio",
                                         "data_seed",
                                         "dataset_num_proc",
                                         "load_from_cache_file",
                                         "dataset_shuffle",
                                         "val_dataset_shuffle",
                                         "streaming",
                                         "interleave_prob",
                                         "stopping_strategy",
                                         "shuffle_buffer_size",
                                         "download_mode",
                                         "columns",
                                         "strict",
                                         "remove_unused_columns",
                                         "disable_auto_column_mapping",
                                         "model_name",
                                         "model_author",
                                         "custom_dataset_info",
                                         "template",
                                         "system",
                                         "max_length",
                                         "truncation_strategy",
                                         "max_pixels",
                                         "agent_template",
                                         "norm_bbox",
                                         "use_chat_template",
                                         "padding_side",
                                         "padding_free",
                                         "loss_scale",
                                         "is_binary_loss_scale",
                                         "sequence_parallel_size",
                                         "template_backend",
                                         "response_prefix",
                                         "enable_thinking",
                                         "preserve_thinking",
                                         "add_non_thinking_prefix",
                                         "disable_ignore_empty_think",
                                         "max_new_tokens",
                                         "temperature",
                                         "top_k",
                                         "top_p",
                                         "repetition_penalty",
                                         "num_beams",
                                         "stream",
                                         "stop_words",
                                         "logprobs",
                                         "top_logprobs",
                                         "structured_outputs_regex",
                                         "quant_method",
                                         "quant_bits",
                                         "hqq_axis",
                                         "bnb_4bit_compute_dtype",
                                         "bnb_4bit_quant_type",
                                         "bnb_4bit_use_double_quant",
                                         "bnb_4bit_quant_storage"};
  for (const char* name : {"infer", "score"}) {
    const auto instance = find_command(name)->make();
    for (const auto& flag : base) EXPECT_NO_THROW(instance->table.at(flag)) << name << " --" << flag;
  }
}

TEST(Commands, EverySamplingFieldIsAFlag) {
  InferOptions options;
  OptionTable table = OptionTable::of(options);
  each_sampling_field([&](const auto& field) {
    table.parse({str("--", field.name), str(field.most)});
    EXPECT_EQ(options.answers.*field.wish, field.most) << field.name;
    EXPECT_THROW(table.parse({str("--", field.name), str(field.least - 1)}), Error) << field.name;
  });
}

TEST(Commands, ChecksAcrossOptions) {
  const std::string model = testing::TempDir() + "apus-model";
  fs::create_directories(model);
  const auto wrong = [&](std::vector<std::string> arguments) -> std::string {
    InferOptions options;
    OptionTable table = OptionTable::of(options);
    try {
      table.parse(arguments);
      options.resolve(table);
      options.check();
    } catch (const Error& error) {
      EXPECT_EQ(error.at.fault, Fault::Usage);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(wrong({"--model", model}), "");
  EXPECT_TRUE(has(wrong({}), "--model is needed"));
  EXPECT_TRUE(has(wrong({"--model", "no-such-folder"}), "no hub id"));
  EXPECT_TRUE(has(wrong({"--model", model, "--metric", "acc"}), "--val_dataset"));
  for (const char* foreign : {"vllm", "sglang", "lmdeploy"}) {
    InferOptions options;
    OptionTable table = OptionTable::of(options);
    table.parse({"--model", model, "--infer_backend", foreign, "--max_batch_size", "16", "--vllm_tensor_parallel_size",
                 "2", "--sglang_tp_size", "2", "--lmdeploy_tp", "2", "--vllm_speculative_config",
                 "{\"method\": \"ngram\"}", "--sglang_context_length", "2048"});
    options.resolve(table);
    options.check();
    EXPECT_EQ(options.infer_backend, "engine");
    EXPECT_EQ(options.model.max_model_len, 2048);
    EXPECT_EQ(options.engine.drafting.spec().tokens, 4);
    const std::string notes = join(table.notes, "\n");
    for (const std::string& part :
         {str("--infer_backend ", foreign, ": Apus's own engine answers"),
          std::string("--max_batch_size has no effect"),
          std::string("--vllm_tensor_parallel_size 2 has no effect: a chat runs in one process")})
      EXPECT_TRUE(has(notes, part)) << notes;
    EXPECT_EQ(options.ranks(), 1);
    InferOptions rows;
    OptionTable of_rows = OptionTable::of(rows);
    of_rows.parse({"--model", model, "--infer_backend", foreign, "--val_dataset", "rows.jsonl",
                   "--vllm_tensor_parallel_size", "2"});
    rows.resolve(of_rows);
    rows.check();
    EXPECT_EQ(rows.ranks(), 2) << "other programs start processes for it too";
    EXPECT_TRUE(has(wrong({"--model", model, "--infer_backend", foreign, "--use_installed_backend", "true"}),
                    str("apus deploy --infer_backend ", foreign)));
  }
  EXPECT_TRUE(has(wrong({"--model", model, "--use_installed_backend", "true"}), "belongs to --infer_backend vllm"));
  InferOptions batched;
  OptionTable table = OptionTable::of(batched);
  table.parse({"--model", model, "--max_batch_size", "2"});
  batched.resolve(table);
  batched.check();
  EXPECT_EQ(batched.engine.spec.max_sequences, 2) << "the engine's batch, as scripts without a backend mean it";
  EXPECT_EQ(wrong({"--model", model, "--max_batch_size", "2", "--infer_backend", "transformers"}), "");
}

TEST(Commands, DeployTakesOtherProgramsNamesForItsEngine) {
  const std::string model = testing::TempDir() + "apus-model";
  fs::create_directories(model);
  for (const char* foreign : {"vllm", "sglang", "lmdeploy"}) {
    DeployOptions options;
    OptionTable table = OptionTable::of(options);
    table.parse({"--model", model, "--infer_backend", foreign, "--vllm_tensor_parallel_size", "2", "--sglang_tp_size",
                 "2", "--lmdeploy_tp", "2", "--agent_template", "react_en"});
    options.resolve(table);
    options.check();
    EXPECT_EQ(options.infer_backend, "engine");
    EXPECT_EQ(options.answers.stop_words, std::vector<std::string>{"Observation:"});
    const std::string notes = join(table.notes, "\n");
    EXPECT_TRUE(has(notes, "Apus's own engine serves")) << notes;
    EXPECT_EQ(options.ranks(), 2);
  }
}

TEST(Commands, TrainingTakesWhatScriptsOfOthersSay) {
  const std::string model = testing::TempDir() + "apus-model";
  fs::create_directories(model);
  TrainRun options;
  OptionTable table = OptionTable::of(options);
  table.parse({"--model", model, "--dataset", "rows.jsonl", "--tuner_type", "lora_llm", "--save_total_limit", "-1",
               "--experts_impl", "grouped_mm", "--encoding", "latin-1"});
  options.resolve(table);
  options.check();
  EXPECT_TRUE(options.tuner.lora());
  EXPECT_FALSE(options.loop.save_total_limit.has_value());  // all stay
  EXPECT_TRUE(has(join(table.notes, "\n"), "--experts_impl has no effect"));
  table.parse({"--encoding", "klingon"});
  EXPECT_THROW(options.check(), Error);
}

TEST(Commands, RowsThatNoFormNeedsAreNoted) {
  const auto noted = [](const std::string& method) {
    ExportOptions options;
    OptionTable table = OptionTable::of(options);
    table.parse({"--model", testing::TempDir(), "--quant_method", method, "--quant_bits", "4", "--dataset",
                 "rows.jsonl", "--group_size", "64", "--quant_batch_size", "2"});
    options.resolve(table);
    return join(table.notes, "\n");
  };
  for (const char* flag : {"--dataset", "--group_size", "--quant_batch_size"}) {
    EXPECT_TRUE(has(noted("bnb"), std::string(flag) + " has no effect with --quant_method bnb")) << noted("bnb");
    EXPECT_FALSE(has(noted("gptq"), flag)) << noted("gptq");
  }
}

TEST(Commands, TextsAreReadFromFiles) {
  const std::string folder = testing::TempDir();
  write_file_atomic(folder + "system.txt", "from a file");
  write_file_atomic(folder + "chat.jinja", "{{ messages }}");
  InferOptions options;
  OptionTable table = OptionTable::of(options);
  table.parse({"--model", folder, "--system", folder + "system.txt", "--chat_template", folder + "chat.jinja"});
  options.resolve(table);
  EXPECT_EQ(options.prompt.system, "from a file");
  EXPECT_EQ(options.prompt.chat_template, "{{ messages }}");
  InferOptions typed;
  OptionTable again = OptionTable::of(typed);
  again.parse({"--model", folder, "--system", "a\\nb"});
  typed.resolve(again);
  EXPECT_EQ(typed.prompt.system, "a\nb");
}

TEST(Commands, TemplateNamesOneOfTheProgramsOwn) {
  const std::string folder = testing::TempDir();
  const auto resolved = [&](std::vector<std::string> more) {
    InferOptions options;
    OptionTable table = OptionTable::of(options);
    more.insert(more.begin(), {"--model", folder});
    table.parse(more);
    options.resolve(table);
    return options.prompt.chat_template;
  };
  EXPECT_NE(resolved({"--template", "chatml"}).find("<|im_start|>"), std::string::npos);
  EXPECT_NE(resolved({"--template", "llama3"}).find("<|start_header_id|>"), std::string::npos);
  EXPECT_THROW(resolved({"--template", "qwen2_5"}), Error);
  EXPECT_THROW(resolved({"--template", "chatml", "--chat_template", "{{ messages }}"}), Error);
}

TEST(Commands, AnswersLieBesideTheCheckpointNotInASharedModel) {
  const fs::path dir = fs::path(testing::TempDir()) / "apus-answers";
  fs::create_directories(dir / "base");
  fs::create_directories(dir / "run");
  write_file_atomic(dir / "run/args.json", "{}");
  const auto folder = [&](const char* model, const char* adapter) {
    InferOptions o;
    o.model.model = (dir / model).string();
    if (adapter) o.adapters.folders = {(dir / adapter).string()};
    return fs::path(default_result_path(o)).parent_path();
  };
  EXPECT_EQ(folder("base", nullptr), "result/base/infer_result");
  EXPECT_EQ(folder("base/", nullptr), "result/base/infer_result");
  EXPECT_EQ(folder("base", "run"), dir / "run/infer_result");
  EXPECT_EQ(folder("run", nullptr), dir / "run/infer_result");
}

TEST(ProgramRun, PlansAKnownShapeWithoutItsFiles) {
  const Result fits = shell(program() + " plan --model qwen2.5-7b --tuner_type lora --device 910B3 --max_length 2048");
  EXPECT_EQ(fits.code, 0) << fits.out;
  EXPECT_TRUE(has(fits.out, "weights")) << fits.out;
  const Result large = shell(program() + " plan --preset qwen2.5-32b --tuner_type full --device 910B3 --devices 8");
  EXPECT_EQ(large.code, 5) << large.out;
  EXPECT_EQ(shell(program() + " plan --model no/such-shape-at-all").code, 2);
  for (const char* command : {"pt", "infer", "deploy", "score", "rlhf --rlhf_type ppo", "sft --task_type reranker"}) {
    const Result r = shell(program() + " plan --preset qwen2.5-0.5b --device H200 --command " + command);
    EXPECT_EQ(r.code, 0) << r.out;
  }
  const Result nowhere = shell(program() + " plan --model /no/such/folder");
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_TRUE(has(nowhere.out, "/no/such/folder: there is no such folder")) << nowhere.out;
  const Result empty = shell(program() + " plan --model /proc");
  EXPECT_EQ(empty.code, 4);
  EXPECT_TRUE(has(empty.out, "/proc holds no config.json")) << empty.out;
}

TEST(ProgramRun, LooksAtNoMachineThatIsNotThere) {
  for (const char* command : {" doctor", " devices", " topo"}) {
    const Result r = shell(program() + command + " --root /no/such/folder");
    EXPECT_EQ(r.code, 2) << command;
    EXPECT_TRUE(has(r.out, "--root /no/such/folder is no folder")) << r.out;
  }
}

// Processor seconds of all children so far: what a run costs, however busy the machine is.
double children_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_CHILDREN, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

TEST(ProgramRun, HelpShowsWhatActsAndAllOfItWhenAsked) {
  const std::string acts = shell(program() + " sft --help").out, all = shell(program() + " sft --help all").out;
  EXPECT_TRUE(has(acts, "--lora_rank") && has(acts, "--help all lists them")) << acts;
  EXPECT_FALSE(has(acts, "--push_to_hub") || has(acts, "--disable_tqdm")) << acts;
  EXPECT_TRUE(has(all, "--lora_rank") && has(all, "--push_to_hub") && has(all, "--disable_tqdm")) << all;
}

TEST(ProgramRun, AFileAtItsSizesLimitIsAFullDisk) {
  const auto rows = fs::path(testing::TempDir()) / "apus-limit.jsonl";
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "{\"messages\": [{\"role\": \"user\", \"content\": \"some words\"}]}\n";
  write_file_atomic(rows, text);
  write_file_atomic(rows.string() + ".jinja", "{{ messages[0].content }}");
  const Result result =
      shell("ulimit -f 8; " + program() + " tokenize --render_only true --chat_template " + rows.string() +
            ".jinja --dataset " + rows.string() + " --result_path " + rows.string() + ".out");
  EXPECT_EQ(result.code, 7) << result.out;
  EXPECT_TRUE(has(result.out, "File too large")) << result.out;
}

TEST(ProgramRun, HelpIsInstant) {
  for (const char* arguments : {" --help", " infer --help", " help score"}) {
    double best = 1;
    for (int attempt = 0; attempt < 5; ++attempt) {
      const double before = children_seconds();
      const Result result = shell(program() + arguments);
      best = std::min(best, children_seconds() - before);
      EXPECT_EQ(result.code, 0) << result.out;
      EXPECT_TRUE(has(result.out, "--help")) << result.out;
    }
#ifndef APUS_SANITIZED
    EXPECT_LT(best, 0.05) << arguments;
#endif
  }
}

TEST(ProgramRun, ExitCodesAndMessages) {
  EXPECT_EQ(shell(program()).code, 2);
  const Result unknown = shell(program() + " inver");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(has(unknown.out, "did you mean infer?")) << unknown.out;
  const Result flag = shell(program() + " infer --modle x");
  EXPECT_EQ(flag.code, 2);
  EXPECT_TRUE(has(flag.out, "did you mean --model?") && has(flag.out, "apus infer --help")) << flag.out;
  EXPECT_EQ(shell(program() + " score --model /tmp --dataset /nowhere.yaml.jsonl --seed x").code, 2);
  EXPECT_EQ(shell(program() + " infer /nowhere.yaml").code, 7);
  EXPECT_EQ(shell("cat /dev/null | " + program() + " --help > /dev/full").code, 7);
}

TEST(ProgramRun, PrintConfigShowsWhatCounts) {
  const std::string folder = testing::TempDir() + "apus-print";
  fs::create_directories(folder);
  write_file_atomic(folder + "/run.yaml", "model: " + folder + "\ntop_k: 7\n");
  const Result result = shell(program() + " infer " + folder + "/run.yaml --top_k 9 --print-config");
  EXPECT_EQ(result.code, 0) << result.out;
  const Json config = parse_json(result.out, "output");
  EXPECT_EQ(config["top_k"], 9);
  EXPECT_EQ(config["model"], folder);
}

TEST(ProgramRun, ThroughLinksOfOtherNames) {
  const fs::path folder = fs::path(testing::TempDir()) / "apus-links";
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::create_symlink(program(), folder / "swift");
  fs::create_symlink(program(), folder / "megatron");
  EXPECT_TRUE(has(shell((folder / "swift").string() + " --help").out, "swift COMMAND"));
  EXPECT_TRUE(has(shell((folder / "swift").string() + " infer --help").out, "swift infer --model DIR"));
  EXPECT_EQ(shell((folder / "megatron").string() + " infer --model x").code, 2) << "it has no such command";
}

}  // namespace
}  // namespace apus
