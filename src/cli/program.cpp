// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <new>
#include <optional>

#include "base/files.h"
#include "base/foreign_words.h"
#include "base/json.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/signals.h"
#include "cli/command.h"
#include "cli/megatron.h"
#include "cli/option_groups.h"
#include "cli/ray_groups.h"
#include "cli/shell_words.h"
#include "dist/launch/environment.h"
#include "dist/launch/launcher.h"

namespace apus {

namespace {

// The scripts of other programs run unchanged through links named like those programs.
struct ProgramName {
  std::string name;
  std::vector<const Command*> commands;
  bool is_megatron() const { return name == "megatron"; }
};

// Through a link, or as `apus megatron ...`, whose first word goes.
ProgramName program_of(std::vector<std::string>& argv) {
  ProgramName program{argv.empty() ? "apus" : std::filesystem::path(argv[0]).filename().string(), all_commands()};
  if (argv.size() > 1 && argv[1] == "megatron" && !program.is_megatron())
    program.name = argv[1], argv.erase(argv.begin() + 1);
  if (!program.is_megatron()) return program;
  std::erase_if(program.commands, [](const Command* command) {
    const std::string& name = command->info.name;
    return name != "sft" && name != "pt" && name != "rlhf" && name != "export";
  });
  return program;
}

// Processes of the run. A rehearsal that is started as one stands for as many as its flags ask for: 0.
int64_t ranks_of(const std::vector<std::string>& arguments) {
  if (const auto launched = read_launch(process_environment())) return launched->ranks * launched->nodes;
  const int64_t world = read_rank(process_environment()).world;
  const auto dry = std::find(arguments.begin(), arguments.end(), "--dry_run");
  const bool rehearsed = dry != arguments.end() && (dry + 1 == arguments.end() || *(dry + 1) == "true");
  return world == 1 && rehearsed ? 0 : world;
}

// Of the model that is asked for, where its config.json can be had; what is wrong with it is told by the command.
std::optional<ModelFacts> facts_of(const std::vector<std::string>& arguments) try {
  const std::string model = value_of(arguments, "model");
  HubFlags hub;
  hub.use_hf = value_of(arguments, "use_hf") == "true";
  if (const std::string revision = value_of(arguments, "model_revision"); !revision.empty())
    hub.model_revision = revision;
  if (const std::string token = value_of(arguments, "hub_token"); !token.empty()) hub.hub_token = token;
  hub.resolve();
  if (!HubFlags::is_model(model)) return std::nullopt;
  const auto config = std::filesystem::path(hub.fetched_model(model, /*weights=*/false)) / "config.json";
  return model_facts(parse_json(read_file(config, 16 << 20), config.string()));
} catch (const Error&) {
  return std::nullopt;
}

// The trainer's flags are looked at here, before the cluster is asked for anything; with --dry_run true that is all.
int run_megatron_on_ray(const Command& command, const std::vector<std::string>& given) {
  const std::string path = value_of(given, "config");
  require(!path.empty(), Fault::Usage, "--use_ray true wants --config FILE.yaml, with a block for each role: train, ",
          "rollout, teacher (docs/rollout.md)");
  const ConfigFile file = read_config_file(path);
  const RayGroups groups = ray_groups(file, path, given);
  std::vector<std::string> arguments(groups.trainer.arguments.begin() + 2, groups.trainer.arguments.end());
  for (const RayGroup& each : groups.servers) {
    log_info(each.role, ": ", each.copies, each.copies == 1 ? " server, " : " servers, ", each.devices,
             each.devices == 1 ? " device each: apus " : " devices each: apus ", join(each.arguments, " "));
    arguments.insert(arguments.end(), {each.address_flag, "http://127.0.0.1:8000"});
  }
  log_info("train: ", groups.trainer.devices, groups.trainer.devices == 1 ? " device" : " devices");
  const auto facts = facts_of(arguments);
  const OwnFlags own =
      own_flags(arguments, {.ranks = groups.trainer.devices, .command = "rlhf", .model = facts ? &*facts : nullptr});
  if (value_of(given, "dry_run") == "true") {
    for (const std::string& note : own.notes) log_warning(note);
    return run_command(command, own.arguments, Json::object(), "apus");
  }
  return run_on_ray(ray_plan(groups, std::filesystem::read_symlink("/proc/self/exe").string(),
                             std::filesystem::current_path().string(), file));
}

int run_megatron(const Command& command, std::vector<std::string> given) {
  if (command.info.name == "rlhf" && value_of(given, "use_ray") == "true") return run_megatron_on_ray(command, given);
  if (const auto config = std::find(given.begin(), given.end(), "--config"); config != given.end()) {
    require(config + 1 != given.end(), Fault::Usage, "--config wants a file");
    const std::string file = config[1];
    given.erase(config, config + 2), given.insert(given.begin(), file);
  }
  const std::vector<std::string> arguments = without_file(given);
  const auto run = [&](const OwnFlags& own) {
    for (const std::string& note : own.notes) log_warning(note);
    return run_command(command, own.arguments, Json::object(), "apus");
  };
  if (command.info.name == "export") return run(own_export_flags(arguments));
  const auto facts = facts_of(arguments);
  return run(own_flags(
      arguments, {.ranks = ranks_of(arguments), .command = command.info.name, .model = facts ? &*facts : nullptr}));
}

const Command& command_of(const ProgramName& program, const std::string& typed) {
  const Command* command = find_command(typed);
  if (command && std::find(program.commands.begin(), program.commands.end(), command) != program.commands.end())
    return *command;
  std::vector<std::string> known;
  for (const Command* each : program.commands) known.push_back(each->info.name);
  std::error_code code;
  if (typed.find_first_of("/.\\") != std::string::npos || std::filesystem::exists(typed, code))
    fail(Fault::Usage, "'", typed.substr(0, 100), "' is no command but a path: a command comes first, as in ",
         program.name, " infer --model ", typed.substr(0, 100));
  if (const std::string use = command_of_foreign_word(typed); !use.empty())
    fail(Fault::Usage, "'", typed, "' is no command; here it is `", program.name, " ", use, "`");
  const auto near = nearest(typed, known);
  fail(Fault::Usage, "'", typed.substr(0, 100), "' is no command",
       near.empty() ? "" : "; did you mean " + join(near, " or ") + "?",
       near.empty() ? ". Commands: " + join(known) : "");
}

// What a shell asks for, or man(1).
int tell_shell(const ProgramName& program, const std::vector<std::string>& argv) {
  const std::string word = argv.size() > 2 ? argv[2] : "";
  if (argv[1] == "completion") {
    std::fputs(completion_script(word).c_str(), stdout);
  } else if (argv[1] == "manual") {
    const Command* command = word.empty() ? nullptr : &command_of(program, word);
    std::fputs(manual_page(program.commands, command, APUS_VERSION).c_str(), stdout);
  } else {
    for (const std::string& each : completed(program.commands, {argv.begin() + 2, argv.end()})) std::puts(each.c_str());
  }
  return 0;
}

int dispatch(const ProgramName& program, const std::vector<std::string>& argv, std::string& command_name) {
  const std::string first = argv.size() > 1 ? argv[1] : "";
  if (first == "--version" || first == "version") return print_version();
  if (first == "completion" || first == "--complete" || first == "manual") return tell_shell(program, argv);
  if (first == "--help" || first == "-h" || (first == "help" && argv.size() == 2)) {
    std::fputs(overview(program.commands, program.name, Log::of().width()).c_str(), stdout);
    return 0;
  }
  if (first.empty()) {
    std::fputs(overview(program.commands, program.name, Log::of().width()).c_str(), stderr);
    return exit_code(Fault::Usage);
  }
  const bool asks_help = first == "help";
  const Command& command = command_of(program, asks_help ? argv[2] : first);
  command_name = command.info.name;
  const std::vector<std::string> arguments(argv.begin() + 2, argv.end());
  if (asks_help) {
    std::vector<std::string> asked(argv.begin() + 3, argv.end());
    asked.insert(asked.begin(), "--help");
    return run_command(command, asked, Json::object(), program.name);
  }
  if (program.is_megatron()) return run_megatron(command, arguments);
  return run_command(command, arguments, Json::object(), program.name);
}

int report(const ProgramName& program, const std::string& command, const Error& error) {
  Log::of().status("");
  const Fault fault = error.at.fault;
  std::string text = error.what();
  if (fault == Fault::Usage) text += str("\nSee `", program.name, command.empty() ? "" : " " + command, " --help`.");
  if (fault == Fault::Bug)
    text += str("\nThis is a defect of Apus: please report it with the command and this text (", error.at.file, ":",
                error.at.line, ").");
  // The launcher shows the first failure of all ranks; a rank whose output is kept in a file writes its own there.
  if (!tell_launcher(fault, text) || !Log::of().main_rank()) log_error(text);
  log_debug("raised as ", fault_name(fault), " at ", error.at.file, ":", error.at.line);
  return exit_code(fault);
}

int flushed(int code) {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
  fail(Fault::Io, "standard output cannot be written (disk full, or closed?)");
}

}  // namespace

int run_program(std::vector<std::string> argv) {
  // A file at the limit of its size is told as a full disk is, by the write that fails.
  ::signal(SIGXFSZ, SIG_IGN);
  ProgramName program;
  std::string command;
  try {
    program = program_of(argv);
    return flushed(dispatch(program, argv, command));
  } catch (const Error& error) {
    return report(program, command, error);
  } catch (const Interrupted& stop) {
    Log::of().status("");
    log_warning("stopped by signal ", stop.signal);
    return 128 + stop.signal;
  } catch (const std::bad_alloc&) {
    return report(program, command,
                  Error(Fault::Device, "out of memory on the host: smaller batches or a shorter context need less"));
  } catch (const std::filesystem::filesystem_error& error) {  // a path that the system refuses is no defect
    return report(program, command, Error(Fault::Io, error.what()));
  } catch (const std::exception& error) {
    const std::string what = error.what();
    // Libraries put a stack trace behind their first line.
    return report(program, command,
                  Error(Fault::Bug, Log::of().says(Level::Debug) ? what : what.substr(0, what.find('\n'))));
  }
}

}  // namespace apus
