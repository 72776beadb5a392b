// SPDX-License-Identifier: Apache-2.0
// The registry of commands, their help, and the way from arguments to a run.
#include "cli/command.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "base/log.h"
#include "base/wrap.h"
#include "cli/rehearsal.h"
#include "cli/train.h"
#include "dist/launch/launcher.h"

namespace apus {

namespace {

constexpr std::array kGroups = {"Train", "Run", "Model", "Data", "Machine"};  // the order of the overview

size_t group_rank(const Command& command) {
  return static_cast<size_t>(std::find(kGroups.begin(), kGroups.end(), command.info.group) - kGroups.begin());
}

std::string general_options(size_t width) {
  return "Everywhere\n" +
         two_columns(
             "FILE.yaml | FILE.json",
             "as the first argument: options from a file; its block ENV sets environment variables that are not set; "
             "options on the command line win",
             36, width) +
         two_columns("--print-config", "show every option with its value as JSON, and stop", 36, width) +
         two_columns("--help", "this text; --help WORD shows the options about a word, --help all every one", 36,
                     width);
}

// Those of the files that register one, and one for each training algorithm.
const std::map<std::string, Command>& known_commands() {
  static const bool trains = (register_training_commands(), true);
  static_cast<void>(trains);
  return Registry<Command>::of().all();
}

}  // namespace

void register_command(Command command) {
  const std::string name = command.info.name;
  Registry<Command>::of().add(name, std::move(command));
}

const Command* find_command(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  const auto& commands = known_commands();
  if (const auto found = commands.find(name); found != commands.end()) return &found->second;
  for (const auto& [key, command] : commands) {
    const auto& aliases = command.info.aliases;
    if (std::find(aliases.begin(), aliases.end(), name) != aliases.end()) return &command;
  }
  return nullptr;
}

std::vector<const Command*> all_commands() {
  std::vector<const Command*> commands;
  for (const auto& [name, command] : known_commands()) commands.push_back(&command);
  std::stable_sort(commands.begin(), commands.end(), [](auto* a, auto* b) { return group_rank(*a) < group_rank(*b); });
  return commands;
}

std::string command_help(const Command& command, const std::string& program, int width,
                         const std::vector<std::string>& arguments, const std::string& word) {
  const auto columns = static_cast<size_t>(std::clamp(width, 60, 140));
  std::string out = str(program, " ", command.info.name, ": ") + command.info.summary;
  out = wrapped(out, 0, 0, columns) + "\n";
  out += str("Usage: ", program, " ", command.info.name, " [FILE.yaml] [--option value ...]\n");
  std::vector<std::string> examples;
  if (command.info.examples_of) examples = command.info.examples_of(arguments);
  for (const auto& example : examples.empty() ? command.info.examples : examples)
    out += str("  ", program, " ", example, "\n");
  out += "\n" + command.make(arguments)->table.help(width, word);
  if (!word.empty() && word != "all") return out;
  out += general_options(columns);
  return command.info.afterword ? out + "\n" + command.info.afterword() : out;
}

std::string overview(const std::vector<const Command*>& commands, const std::string& program, int width) {
  const auto columns = static_cast<size_t>(std::clamp(width, 60, 140));
  std::string out =
      wrapped("Apus fine-tunes, aligns, runs and serves large language models on Ascend NPU, NVIDIA GPU and CPU.", 0, 0,
              columns);
  out += str("\nUsage: ", program, " COMMAND [FILE.yaml] [--option value ...]\n");
  std::string group;
  for (const Command* command : commands) {
    if (command->info.group.empty()) continue;
    if (command->info.group != group) out += str("\n", group = command->info.group, "\n");
    out += two_columns(command->info.name, command->info.summary, 18, columns);
  }
  out += str("\n", program,
             " COMMAND --help explains the usual options of a command, --help WORD those about a word, --help "
             "all every one; ",
             program, " --version tells what it is built on; ", program, " completion SHELL and ", program,
             " manual [COMMAND] write what bash, zsh, fish and man read.\n");
  return out;
}

int run_command(const Command& command, const std::vector<std::string>& arguments, const Json& defaults,
                const std::string& program) {
  std::vector<std::string> own;
  std::string word;  // behind --help
  bool print_config = false, asks_help = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      asks_help = true;
      if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) word = arguments[++i];
    } else if (argument == "--print-config" || argument == "--print_config") {
      print_config = true;
    } else {
      own.push_back(argument);
    }
  }
  if (asks_help) {
    std::fputs(command_help(command, program, Log::of().width(), own, word).c_str(), stdout);
    return 0;
  }
  const auto instance = command.make(own);
  OptionTable& table = instance->table;
  for (const auto& [name, value] : defaults.items()) table.set(name, value);
  table.parse(own);
  instance->resolve(table);
  for (const auto& note : table.notes) log_warning(note);
  instance->check();
  if (print_config) {
    std::fputs((json_text(table.json(), 2) + "\n").c_str(), stdout);
    return 0;
  }
  instance->fetch();
  if (instance->is_dry()) {
    Rehearsal rehearsal(command.info.name);
    instance->rehearse(rehearsal);
    return rehearsal.finish();
  }
  auto plan = read_launch(process_environment());
  const int64_t wanted = instance->ranks ? instance->ranks() : 1;
  if (wanted == 0) return instance->run();
  if (!plan && wanted > 1 && read_rank(process_environment()).world == 1)
    plan = LaunchPlan{.ranks = static_cast<int>(wanted)};
  const int64_t restarts = instance->restarts ? instance->restarts() : 0;
  if (restarts > 0 && !plan && !is_launched()) {
    require(read_rank(process_environment()).world == 1, Fault::Usage,
            "--max_restarts is for processes that apus starts (NPROC_PER_NODE=8 apus sft ...); these were started by "
            "another "
            "launcher, which starts them again itself: torchrun --max_restarts, sbatch --requeue");
    plan = LaunchPlan{.ranks = 1};
  }
  if (plan) {
    const auto argv_of = [&](const std::vector<std::string>& given) {
      std::vector<std::string> argv = {program, command.info.name};
      argv.insert(argv.end(), given.begin(), given.end());
      return argv;
    };
    const auto logs = instance->ranks_dir ? instance->ranks_dir() : std::filesystem::path();
    const auto began = std::filesystem::file_time_type::clock::now();
    if (!logs.empty())
      return launch({.plan = *plan, .argv = argv_of(arguments), .log_dir = logs, .restarts = restarts, .again = [&] {
                       return argv_of(instance->again(arguments, began));
                     }});
    log_warning("NPROC_PER_NODE and NNODES are not used: apus ", command.info.name, " runs as one process");
  }
  return instance->run();
}

}  // namespace apus
