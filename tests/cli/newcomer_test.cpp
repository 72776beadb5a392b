// SPDX-License-Identifier: Apache-2.0
// What somebody meets who comes from another program: words of theirs, paths of runs, help, names on a server.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/assets.h"
#include "base/files.h"
#include "base/foreign_words.h"
#include "base/nearest.h"
#include "checkpoint/run_folder.h"
#include "cli/deploy.h"
#include "cli/export.h"
#include "cli/infer.h"
#include "cli/train.h"
#include "reward/external.h"
#include "tests/folder.h"
#include "tests/refusal.h"
#include "tests/shell.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// What a command says of one wrong argument.
std::string refused(const std::string& command, const std::vector<std::string>& arguments) {
  try {
    find_command(command)->make(arguments)->table.parse(arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Newcomer, WordsOfOtherProgramsLeadToOurs) {
  const std::vector<std::vector<std::string>> table = {
      // HuggingFace, TRL
      {"sft", "--lr", "--learning_rate"},
      {"sft", "--epochs", "--num_train_epochs"},
      {"sft", "--load_in_4bit", "--quant_method bnb --quant_bits 4"},
      {"sft", "--model_name_or_path", "--model"},
      {"rlhf", "--dpo_beta", "--beta"},
      // LLaMA-Factory
      {"sft", "--cutoff_len", "--max_length"},
      {"sft", "--finetuning_type", "--tuner_type"},
      {"infer", "--adapter_name_or_path", "--adapters"},
      {"sft", "--use_unsloth", "leave it out"},
      // Unsloth
      {"sft", "--random_state", "--seed"},
      {"export", "--quantization_method", "--to_gguf"},
      // vLLM
      {"deploy", "--lora-modules", "--adapters NAME=DIR"},
      {"deploy", "--tp", "--tensor_model_parallel_size"},
      {"infer", "--quantization", "--quant_method"},
      // llama.cpp
      {"infer", "--ctx_size", "--max_model_len"},
      {"infer", "-c", "--max_model_len"},
      {"infer", "-m", "--model"},
      {"infer", "--n-predict", "--max_new_tokens"},
      {"infer", "--temp", "--temperature"},
      {"infer", "--prompt", "--val_dataset"},
      {"export", "--outfile", "--output_dir"},
      // ms-swift
      {"sft", "--nproc_per_node", "NPROC_PER_NODE=8"},
  };
  for (const auto& row : table) {
    const std::string said = refused(row[0], {row[1], "1"});
    EXPECT_TRUE(mentions(said, row[2])) << row[0] << " " << row[1] << ": " << said;
    EXPECT_TRUE(mentions(said, "here it is") || mentions(said, "leave it out")) << said;
  }
  EXPECT_TRUE(
      mentions(refused("sft", {"--tuner_type", "qlora"}), "--tuner_type lora --quant_method bnb --quant_bits 4"));
  EXPECT_TRUE(mentions(refused("sft", {"--torch_dtype", "bf16"}), "--torch_dtype bfloat16"));
  EXPECT_EQ(refused("infer", {"--adapter", "x"}), "") << "an unambiguous beginning is no foreign word";
}

TEST(Newcomer, TheTableOfWordsNamesWhatThereIs) {
  const Json all = Json::parse(asset("knowledge/words.json"));
  std::map<std::string, int> of;
  std::vector<std::shared_ptr<Command::Instance>> instances = {find_command("rlhf")->make({"--rlhf_type", "grpo"})};
  for (const Command* command : all_commands()) instances.push_back(command->make({}));
  for (const Json& entry : all["options"]) {
    for (const char* program : {"HuggingFace", "LLaMA-Factory", "Unsloth", "vLLM", "llama.cpp", "ms-swift"})
      of[program] += mentions(entry["of"], program);
    const std::string use = entry["use"];
    for (const std::string word : entry["words"]) {
      bool known = false;
      for (const auto& instance : instances) {
        const auto is_option = [&](const std::string& name) {
          for (const auto& option : instance->table.options())
            if (option->name == name && option->refusal.empty() && option->no_effect.empty()) return true;
          return false;
        };
        known |= option_of_foreign_word(word, is_option) == use;
      }
      EXPECT_TRUE(known) << word << " -> " << use << ": no command has these options, or another entry comes first";
    }
  }
  for (const auto& [program, entries] : of) EXPECT_GE(entries, 3) << program;
  for (const Json& entry : all["commands"])
    for (const std::string word : entry["words"]) {
      EXPECT_EQ(find_command(word), nullptr) << word << " is a command here";
      std::istringstream use(command_of_foreign_word(word));
      std::string name;
      use >> name;
      EXPECT_NE(find_command(name), nullptr) << word << " -> " << name;
    }
}

TEST(Newcomer, CommandsOfOtherProgramsLeadToOursAndPathsDoNot) {
  const std::string apus = test::program();
  const auto said = [&](const std::string& words) { return test::shell(apus + " " + words).out; };
  EXPECT_TRUE(mentions(said("train --model x"), "here it is `apus sft`"));
  EXPECT_TRUE(mentions(said("chat"), "here it is `apus infer`"));
  EXPECT_TRUE(mentions(said("serve"), "here it is `apus deploy`"));
  EXPECT_TRUE(mentions(said("grpo"), "here it is `apus rlhf --rlhf_type grpo`"));
  const test::Folder folder;
  const std::string path = said((folder.path / "mode").string());
  EXPECT_TRUE(mentions(path, "is no command but a path") && !mentions(path, "did you mean")) << path;
  EXPECT_TRUE(mentions(said("models/qwen.gguf"), "infer --model models/qwen.gguf"));
}

TEST(Newcomer, HelpIsShortSearchesAndShowsAll) {
  const auto count = [](const std::string& help) {
    int options = 0;
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) options += line.starts_with("  --") && line[4] != ' ';
    return options;
  };
  const Command &sft = *find_command("sft"), &rlhf = *find_command("rlhf");
  const std::string brief = command_help(sft, "apus", 120), all = command_help(sft, "apus", 120, {}, "all");
  EXPECT_LE(count(brief), 42) << brief;
  EXPECT_GE(count(brief), 25) << brief;
  EXPECT_GE(count(all), 150);
  for (const char* usual :
       {"--model", "--dataset", "--lora_rank", "--learning_rate", "--num_train_epochs", "--output_dir",
        "--per_device_train_batch_size", "--max_length", "--quant_bits", "--dry_run"})
    EXPECT_TRUE(mentions(brief, usual)) << usual;
  EXPECT_TRUE(mentions(brief, "--help WORD") && mentions(brief, "--help all"));
  const std::string lora = command_help(sft, "apus", 120, {}, "lora");
  EXPECT_TRUE(mentions(lora, "--lora_alpha") && mentions(lora, "--use_dora") && !mentions(lora, "  --num_train_epochs"))
      << lora;
  EXPECT_TRUE(mentions(lora, "--use_swift_lora")) << "also what is refused";
  EXPECT_TRUE(mentions(command_help(sft, "apus", 120, {}, "lr"), "--learning_rate"));
  EXPECT_TRUE(mentions(command_help(sft, "apus", 120, {}, "zzz"), "No option has 'zzz'"));
  const std::string grpo = command_help(rlhf, "apus", 120, {"--rlhf_type", "grpo"});
  EXPECT_TRUE(mentions(grpo, "apus rlhf --rlhf_type grpo") && !mentions(grpo, "apus rlhf --rlhf_type dpo --model"))
      << grpo;
  EXPECT_TRUE(mentions(grpo, "--reward_funcs") && mentions(grpo, "--num_generations"));
  EXPECT_TRUE(mentions(overview(all_commands(), "apus", 100), "comm-check"));
  EXPECT_TRUE(mentions(test::shell(test::program() + " sft --help lora").out, "--lora_alpha"));
  EXPECT_TRUE(mentions(test::shell(test::program() + " help sft lora").out, "--lora_alpha"));
}

// grep shows one line: it must not need the one above it.
TEST(Newcomer, EveryLineOfHelpStandsAlone) {
  std::vector<std::pair<const Command*, std::vector<std::string>>> asked;
  for (const Command* command : all_commands()) asked.emplace_back(command, std::vector<std::string>());
  for (const std::string& name : algorithms_of("rlhf"))
    asked.emplace_back(find_command("rlhf"), std::vector<std::string>{"--rlhf_type", name});
  for (const auto& [command, arguments] : asked) {
    const auto instance = command->make(arguments);
    for (const auto& option : instance->table.options()) {
      if (option->help.empty() || !option->refusal.empty() || !option->no_effect.empty()) continue;
      for (const char* begin :
           {"the same", "and ", "...", "of ", "its ", "it ", "that of", "instead", "also ", "with it,"})
        EXPECT_FALSE(option->help.starts_with(begin))
            << command->info.name << " --" << option->name << ": " << option->help;
      EXPECT_FALSE(mentions(option->help, ": ...")) << option->name;
    }
    EXPECT_FALSE(mentions(command_help(*command, "apus", 100, arguments, "all"), "[[\"")) << command->info.name;
  }
}

// A folder of runs: out/v0-.../checkpoint-2 and -10, and a newer run without any.
fs::path folder_of_runs(const fs::path& root, const char* file) {
  for (const char* step : {"checkpoint-2", "checkpoint-10"})
    fs::create_directories(root / "v0-20260101-000000" / step),
        write_file_atomic(
            root / "v0-20260101-000000" / step / file,
            R"({"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"], "base_model_name_or_path": "/base"})");
  fs::create_directories(root / "v1-20260102-000000");
  return root / "v0-20260101-000000" / "checkpoint-10";
}

template <class Options>
std::pair<Options, std::string> resolved(const std::vector<std::string>& arguments) {
  Options options;
  OptionTable table = OptionTable::of(options);
  table.parse(arguments);
  options.resolve(table);
  return {options, join(table.notes, "\n")};
}

TEST(Newcomer, AFolderOfRunsStandsForItsNewestCheckpoint) {
  const test::Folder folder;
  const fs::path adapters = folder.path / "lora", models = folder.path / "full";
  const fs::path adapter = folder_of_runs(adapters, "adapter_config.json"),
                 model = folder_of_runs(models, "config.json");
  EXPECT_EQ(newest_checkpoint(adapters), adapter);
  EXPECT_EQ(newest_checkpoint(adapters / "v1-20260102-000000"), "");
  const auto [with, note] = resolved<InferOptions>({"--adapters", adapters.string()});
  EXPECT_EQ(with.adapters.first(), adapter.string());
  EXPECT_TRUE(mentions(note, "its newest checkpoint is taken")) << note;
  EXPECT_EQ(resolved<InferOptions>({"--model", models.string()}).first.model.model, model.string());
  EXPECT_EQ(resolved<TrainRun>({"--model", models.string(), "--dataset", "r"}).first.model.model, model.string());
  EXPECT_EQ(resolved<ExportOptions>({"--adapters", adapters.string()}).first.adapters[0], adapter.string());
  const auto wrong = [](const std::vector<std::string>& arguments) {
    return test::refusal(Fault::Usage, [&] { resolved<InferOptions>(arguments); });
  };
  EXPECT_TRUE(mentions(wrong({"--model", adapters.string()}), "give --adapters " + adapter.string()));
  EXPECT_TRUE(mentions(wrong({"--adapters", models.string()}), "--model " + model.string()));
}

TEST(Newcomer, AServerIsForThisMachineAndItsModelsHaveNames) {
  const test::Folder folder;
  const fs::path base = folder.path / "base", runs = folder.path / "out" / "skill";
  fs::create_directories(base);
  write_file_atomic(base / "config.json", "{}");
  const fs::path adapter = folder_of_runs(runs, "adapter_config.json");
  const auto served = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--model", base.string()});
    return resolved<DeployOptions>(arguments).first;
  };
  EXPECT_EQ(served({}).host, "127.0.0.1");
  const DeployOptions one = served({"--adapters", adapter.string()});
  EXPECT_EQ(*one.served_model_name, "base") << "the base keeps its name";
  ASSERT_EQ(one.served.size(), 1u);
  EXPECT_EQ(one.served[0].name, "skill") << "the folder of its runs";
  EXPECT_EQ(one.served[0].folder, adapter.string());
  EXPECT_FALSE(one.served[0].named);
  const DeployOptions called = served({"--adapters", adapter.string(), "--served_model_name", "mine"});
  EXPECT_EQ(called.served[0].name, "mine");
  EXPECT_EQ(*called.served_model_name, "base");
  EXPECT_EQ(*served({"--served_model_name", "mine", "gpt-4o"}).served_model_name, "mine");
  test::expect_says(test::refusal(Fault::Usage,
                                  [&] {
                                    served({"--adapters", adapter.string(), "--served_model_name", "a", "b"});
                                  }),
                    "--adapters NAME=DIR");
  const DeployOptions two = served({"--adapters", "a=" + adapter.string(), adapter.parent_path().string()});
  EXPECT_EQ(two.served[0].name, "a");
  EXPECT_EQ(two.served[1].name, "skill");
  EXPECT_EQ(two.served[1].folder, adapter.string()) << "a run's folder stands for its newest checkpoint";
  const std::vector<std::string> twice = {"--adapters", "a=" + adapter.string(), "a=" + adapter.string()};
  EXPECT_TRUE(mentions(test::refusal(Fault::Usage, [&] { served(twice); }), "'a' is taken"));
  // Where the folder is called as the model is, the run is; in a folder without runs it is "lora".
  std::vector<ServedAdapter> names = served_adapters({"/x/base/v3-20260101-000000/checkpoint-4", "/base"});
  name_adapters(names, "base");
  EXPECT_EQ(names[0].name, "v3-20260101-000000");
  EXPECT_EQ(names[1].name, "lora");
}

TEST(Newcomer, WhoMayAskIsSaid) {
  const auto said = [](const std::string& host, bool key) {
    DeployOptions o;
    o.host = host;
    if (key) o.api_key = "SECRET";
    testing::internal::CaptureStderr();
    say_who_may_ask(o);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_TRUE(mentions(said("127.0.0.1", false), "only this machine"));
  EXPECT_TRUE(mentions(said("0.0.0.0", false), "WHOEVER REACHES THIS MACHINE MAY USE THE SERVER"));
  EXPECT_TRUE(mentions(said("0.0.0.0", true), "API key required"));
  EXPECT_FALSE(mentions(said("0.0.0.0", true), "SECRET"));
}

TEST(Newcomer, ARewardProgramIsLookedForBeforeTheRun) {
  const test::Folder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path);
  write_file_atomic("reward.py", "#!/bin/sh\necho 1\n");
  const auto said = [](const std::string& command) {
    return test::refusal(Fault::Usage, [&] { check_program(command, "--reward_funcs"); });
  };
  EXPECT_TRUE(mentions(said("reward.py"), "external:./reward.py"));
  EXPECT_TRUE(mentions(said("./reward.py --strict"), "chmod +x ./reward.py"));
  EXPECT_TRUE(mentions(said("./rewards.py"), "there is no file ./rewards.py"));
  ::chmod("reward.py", 0755);
  for (const char* fine :
       {"./reward.py --strict", "python3 ./reward.py", "sh -c 'echo 1'", "while read x; do echo 1; done"})
    EXPECT_NO_THROW(check_program(fine, "--reward_funcs")) << fine;
  const std::vector<std::string> judged = {"--model", folder.path.string(), "--val_dataset", "r.jsonl", "--metric"};
  const auto metric = [&](const std::string& name) {
    std::vector<std::string> arguments = judged;
    arguments.push_back(name);
    resolved<InferOptions>(arguments).first.check();
  };
  EXPECT_NO_THROW(metric("external:./reward.py"));
  EXPECT_TRUE(mentions(test::refusal(Fault::Usage, [&] { metric("external:./reword.py"); }), "there is no file"));
  EXPECT_TRUE(mentions(test::refusal(Fault::Usage, [&] { metric("accurate"); }), "Allowed: acc, rouge, accuracy"));
  fs::current_path(before);
}

TEST(Newcomer, TheCacheIsListedAndCleared) {
  const test::Folder folder;
  const fs::path made = folder.path / "apus/gguf/abc123/smol",
                 hub = folder.path / "modelscope/hub/models/Qwen/Qwen3-0___6B",
                 hf = folder.path / "huggingface/hub/datasets--owner--rows";
  for (const fs::path& each : {made, hub, hf}) {
    fs::create_directories(each);
    write_file_atomic(each / "file", std::string(2048, 'x'));
  }
  const std::string cache =
      "env -u HF_HOME -u HF_HUB_CACHE -u HUGGINGFACE_HUB_CACHE -u MODELSCOPE_CACHE XDG_CACHE_HOME=" +
      folder.path.string() + " " + test::program() + " cache";
  const std::string listed = test::shell(cache).out;
  for (const char* part : {"smol", "made of a GGUF file", "Qwen/Qwen3-0.6B", "model of ModelScope", "owner/rows",
                           "dataset of HuggingFace", "2.00 KiB", "6.00 KiB in all"})
    EXPECT_TRUE(mentions(listed, part)) << part << "\n" << listed;
  EXPECT_EQ(test::shell(cache + " --clear Qwen/Qwen3-0.5B").code, 2);
  EXPECT_TRUE(mentions(test::shell(cache + " --clear made").out, "removed smol"));
  EXPECT_FALSE(fs::exists(made)) << "it can be made again";
  EXPECT_TRUE(fs::exists(hub)) << "a download goes by its name alone";
  EXPECT_EQ(test::shell(cache + " --clear Qwen/Qwen3-0.6B").code, 0);
  EXPECT_FALSE(fs::exists(hub));
  EXPECT_EQ(Json::parse(test::shell(cache + " --json true 2>/dev/null").out).size(), 1u);
}

}  // namespace
}  // namespace apus
