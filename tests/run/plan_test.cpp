// SPDX-License-Identifier: Apache-2.0
// apus plan against the programs it plans: the parameters of every known shape, and the memory that runs really took.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/ports.h"
#include "tests/paths.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

using Words = std::vector<std::string>;

struct ProgramEnd {
  int exit = -1;
  double peak = 0;  // bytes resident, of its whole life
};

using Variables = std::map<std::string, std::string>;

pid_t start_program(Words words, const fs::path& output, const Variables& variables) {
  words.insert(words.begin(), (test::binary_dir() / "apus").string());
  const pid_t child = fork();
  if (child != 0) return child;
  const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(file, 1), ::dup2(file, 2);
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", 1);  // on a busy machine threads that spin wait for each other
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

// Whether it has ended; if not, looks at its peak, which only grows.
bool watch(pid_t child, ProgramEnd& ran) {
  int status = 0;
  if (::waitpid(child, &status, WNOHANG) != 0) {
    ran.exit = std::max(ran.exit, WIFEXITED(status) ? WEXITSTATUS(status) : 128);
    return true;
  }
  std::ifstream in(str("/proc/", child, "/status"));
  std::string program, peak;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("Name:", 0) == 0) program = line;
    if (line.rfind("VmHWM:", 0) == 0) peak = line.substr(6);
  }
  if (program.find("apus") != std::string::npos && !peak.empty()) ran.peak = std::max(ran.peak, std::stod(peak) * 1024);
  return false;
}

// Runs the program as so many ranks, and finds the peak of the largest.
ProgramEnd run_program(const Words& words, const fs::path& output, int ranks = 1) {
  std::vector<pid_t> running;
  const std::string port = str(free_port().value());
  for (int r = 0; r < ranks; ++r) {
    Variables variables;
    if (ranks > 1)
      variables = {{"RANK", str(r)},      {"WORLD_SIZE", str(ranks)},       {"LOCAL_RANK", str(r)},
                   {"MASTER_PORT", port}, {"LOCAL_WORLD_SIZE", str(ranks)}, {"MASTER_ADDR", "127.0.0.1"}};
    running.push_back(start_program(words, r == 0 ? output : fs::path(output.string() + str(r)), variables));
  }
  ProgramEnd ran;
  while (!running.empty()) {
    std::erase_if(running, [&](pid_t child) { return watch(child, ran); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return ran;
}

struct Case {
  const char *name, *dtype;
  Words flags;
  const char* act = "silu";
  int ranks = 1;
  int kv_heads = 4;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class PlannedMemory : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    dir() = fs::temp_directory_path() / str("apus-plan-", ::getpid());
    fs::create_directories(dir());
    std::ofstream rows(dir() / "rows.jsonl");
    std::string answer;
    for (int i = 0; i < 500; ++i) answer += str("river ", i, " ");
    for (int i = 0; i < 8; ++i)
      rows << Json{{"messages",
                    {{{"role", "user"}, {"content", "Count."}}, {{"role", "assistant"}, {"content", answer}}}}}
           << "\n";
  }
  static void TearDownTestSuite() { fs::remove_all(dir()); }
  static fs::path& dir() {
    static fs::path path;
    return path;
  }
  static Json config(const std::string& act, int kv_heads) {
    return {{"model_type", "qwen2"},
            {"architectures", {"Qwen2ForCausalLM"}},
            {"hidden_size", 512},
            {"num_hidden_layers", 6},
            {"num_attention_heads", 8},
            {"num_key_value_heads", kv_heads},
            {"intermediate_size", 1408},
            {"vocab_size", 8192},
            {"hidden_act", act},
            {"tie_word_embeddings", true},
            {"max_position_embeddings", 2048}};
  }
  static std::string model(const Case& c) {
    const std::string dtype = c.dtype, act = c.act;
    const fs::path path = dir() / str(dtype, "-", act, "-", c.kv_heads), file = dir() / (act + ".json");
    if (!fs::exists(path / "config.json")) {
      write_file_atomic(file, config(act, c.kv_heads).dump());
      const ProgramEnd made =
          run_program({"init", "--config", file.string(), "--torch_dtype", dtype, "--output_dir", path.string()},
                      dir() / "init.log");
      require(made.exit == 0, Fault::Bug, read_file(dir() / "init.log"));
    }
    return path.string();
  }
};

TEST_P(PlannedMemory, IsWhatTheRunTakes) {
  Words flags = {"--model", model(GetParam()), "--device", "cpu", "--truncation_strategy", "right"};
  flags.insert(flags.end(), GetParam().flags.begin(), GetParam().flags.end());
  const auto with = [&](Words front, const Words& back) {
    front.insert(front.end(), flags.begin(), flags.end());
    front.insert(front.end(), back.begin(), back.end());
    return front;
  };
  ASSERT_EQ(run_program(with({"plan"}, {"--json", "--devices", str(GetParam().ranks)}), dir() / "plan.json").exit, 0)
      << read_file(dir() / "plan.json");
  const std::string text = read_file(dir() / "plan.json");
  const Json plan = Json::parse(text.substr(text.find("{\n")));
  const ProgramEnd ran = run_program(with({"sft"}, {"--dataset", (dir() / "rows.jsonl").string(), "--max_steps", "2",
                                                    "--report_to", "none", "--output_dir", (dir() / "out").string()}),
                                     dir() / "sft.log", GetParam().ranks);
  ASSERT_EQ(ran.exit, 0) << read_file(dir() / "sft.log");
  const auto planned = plan.at("peak_bytes").get<double>();
  std::printf("%-28s %7.1f MiB planned, %7.1f MiB taken: %+.1f %%\n", GetParam().name, planned / (1 << 20),
              ran.peak / (1 << 20), 100 * (planned / ran.peak - 1));
  EXPECT_NEAR(planned / ran.peak, 1, 0.1) << plan.dump(1);
}

INSTANTIATE_TEST_SUITE_P(
    Plan, PlannedMemory,
    ::testing::Values(
        Case{"full_f32",
             "float32",
             {"--tuner_type", "full", "--max_length", "1024", "--gradient_accumulation_steps", "1",
              "--gradient_checkpointing", "false"}},
        Case{"full_f32_recompute_acc2",
             "float32",
             {"--tuner_type", "full", "--max_length", "512", "--gradient_accumulation_steps", "2"}},
        Case{"full_f32_sgd",
             "float32",
             {"--tuner_type", "full", "--max_length", "512", "--gradient_accumulation_steps", "1",
              "--gradient_checkpointing", "false", "--optim", "sgd"}},
        Case{"full_f32_8bit",
             "float32",
             {"--tuner_type", "full", "--max_length", "512", "--gradient_accumulation_steps", "1", "--optim",
              "adamw_8bit"}},
        Case{"full_bf16",
             "bfloat16",
             {"--tuner_type", "full", "--max_length", "1024", "--gradient_accumulation_steps", "1",
              "--gradient_checkpointing", "false"}},
        Case{"full_bf16_8bit_stochastic",
             "bfloat16",
             {"--tuner_type", "full", "--max_length", "512", "--gradient_accumulation_steps", "2", "--optim",
              "adamw_8bit", "--master_weights", "stochastic"}},
        Case{"full_bf16_8bit_in_backward",
             "bfloat16",
             {"--tuner_type", "full", "--max_length", "512", "--gradient_accumulation_steps", "1", "--optim",
              "adamw_8bit", "--master_weights", "stochastic", "--update_in_backward", "true", "--max_grad_norm", "0",
              "--recompute_granularity", "selective"}},
        Case{"full_bf16_adafactor_in_backward",
             "bfloat16",
             {"--tuner_type", "full", "--max_length", "512", "--gradient_accumulation_steps", "1", "--optim",
              "adafactor", "--update_in_backward", "true", "--max_grad_norm", "0"}},
        Case{"lora_bf16",
             "bfloat16",
             {"--tuner_type", "lora", "--max_length", "1024", "--gradient_accumulation_steps", "1",
              "--gradient_checkpointing", "false"}},
        Case{"lora_bf16_selective",
             "bfloat16",
             {"--tuner_type", "lora", "--max_length", "2048", "--gradient_accumulation_steps", "1",
              "--recompute_granularity", "selective", "--recompute_modules", "mlp", "--recompute_num_layers", "2"}},
        Case{"dora_bf16",
             "bfloat16",
             {"--tuner_type", "lora", "--use_dora", "true", "--torch_dtype", "bfloat16", "--max_length", "1024"}},
        Case{"full_f32_selective",
             "float32",
             {"--tuner_type", "full", "--max_length", "1024", "--gradient_accumulation_steps", "1",
              "--recompute_granularity", "selective"}},
        Case{"full_f32_gelu",
             "float32",
             {"--tuner_type", "full", "--max_length", "1024", "--gradient_accumulation_steps", "1",
              "--gradient_checkpointing", "false"},
             "gelu"},
        Case{"full_f32_relu",
             "float32",
             {"--tuner_type", "full", "--max_length", "1024", "--gradient_accumulation_steps", "1",
              "--gradient_checkpointing", "false"},
             "relu"},
        Case{"full_f32_gelu_selective",
             "float32",
             {"--tuner_type", "full", "--max_length", "1024", "--gradient_accumulation_steps", "1",
              "--recompute_granularity", "selective"},
             "gelu_new"},
        Case{"lora_f32_two_rows",
             "float32",
             {"--tuner_type", "lora", "--lora_rank", "32", "--max_length", "512", "--per_device_train_batch_size", "2",
              "--gradient_accumulation_steps", "1", "--gradient_checkpointing", "false"}},
        Case{"zero1_f32",
             "float32",
             {"--tuner_type", "full", "--max_length", "512", "--gradient_accumulation_steps", "1", "--deepspeed",
              "zero1"},
             "silu",
             2},
        Case{"zero2_f32",
             "float32",
             {"--tuner_type", "full", "--max_length", "512", "--gradient_accumulation_steps", "2", "--deepspeed",
              "zero2"},
             "silu",
             2},
        Case{"zero3_f32",
             "float32",
             {"--tuner_type", "full", "--max_length", "512", "--gradient_accumulation_steps", "1", "--deepspeed",
              "zero3"},
             "silu",
             2},
        Case{"zero3_bf16_4",
             "bfloat16",
             {"--tuner_type", "full", "--max_length", "512", "--gradient_accumulation_steps", "1", "--deepspeed",
              "zero3"},
             "silu",
             4},
        Case{"rows_of_two",
             "float32",
             {"--tuner_type", "lora", "--max_length", "2048", "--gradient_accumulation_steps", "1",
              "--gradient_checkpointing", "false", "--sequence_parallel_size", "2"},
             "silu",
             2},
        Case{"rows_in_a_ring_of_two",
             "float32",
             {"--tuner_type", "lora", "--max_length", "2048", "--gradient_accumulation_steps", "1",
              "--gradient_checkpointing", "false", "--sequence_parallel_size", "2"},
             "silu",
             2,
             1},
        Case{"rows_in_a_ring_of_four_zero2",
             "bfloat16",
             {"--tuner_type", "full", "--max_length", "2048", "--gradient_accumulation_steps", "1", "--deepspeed",
              "zero2", "--sequence_parallel_size", "4"},
             "silu",
             4,
             2}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace apus
