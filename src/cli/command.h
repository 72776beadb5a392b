// SPDX-License-Identifier: Apache-2.0
// A command is one file that registers itself:
//
//   namespace { int run(const InferOptions& options) { return run_heavy("infer", &options); }
//   const RegisterCommand<InferOptions> infer_command({.name = "infer", .group = "Run", .summary = "...", .examples =
//   {...}}, run); }
//
// Its options struct has `fields(OptionTable&)`, and may have `resolve(OptionTable&)` (fill in from a checkpoint's
// args.json, read files that options name), `check() const` (rules across options, throwing Fault::Usage) and `fetch()`
// (download what is named by a hub's id). All run, in this order, before any device is opened or model is read. A
// command that can run as several processes has `ranks_dir() const`: the folder for the output of all but the first;
// and one that starts them unasked `ranks() const`, which is 0 where the command starts processes itself.
// `rehearse(Rehearsal&) const` is what --dry_run true does instead of running (cli/rehearsal.h); with `plan_spec` (cli/
// planned.h) the command can be planned. A command that is another one and more has that one's options as inner(),
// whose ranks, ranks_dir, --dry_run and plan are its own where it says nothing else.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/registry.h"
#include "cli/heavy.h"
#include "cli/planned.h"

namespace apus {

class Rehearsal;

struct CommandInfo {
  std::string name;  // "merge-lora"; underscores typed by the user are hyphens
  // Heading in `apus --help`: Train, Run, Model, Machine; empty: not shown.
  std::string group;
  std::string summary;                // one line
  std::vector<std::string> examples;  // without the program's name: "infer --model DIR"
  std::vector<std::string> aliases = {};
  // Makes the text that its help ends with.
  std::string (*afterword)() = nullptr;
  // The examples of what the arguments ask for, where that changes the options; empty: `examples`.
  std::vector<std::string> (*examples_of)(const std::vector<std::string>& arguments) = nullptr;
};

struct Command {
  CommandInfo info;
  // A fresh options struct with its table; parsed, then completed and checked, then run.
  struct Instance {
    OptionTable table;
    std::function<void(OptionTable&)> resolve;
    std::function<void()> check, fetch;
    std::function<std::filesystem::path()> ranks_dir;  // none, or one that gives an empty path: one process
    std::function<int64_t()> ranks;     // that are started where nobody has; none: 1; 0: the command does it itself
    std::function<int64_t()> restarts;  // of processes that were lost; none: 0
    // The arguments that go on with a run that began then, of those that it was given.
    std::function<std::vector<std::string>(std::vector<std::string>, std::filesystem::file_time_type)> again;
    std::function<int()> run;
    std::function<bool()> is_dry;
    std::function<void(Rehearsal&)> rehearse;
    std::optional<Planned> planned;  // none: `apus plan` does not know it
  };
  // Made for these arguments: which algorithm they ask for may decide which options there are. Nothing is parsed yet.
  std::function<std::unique_ptr<Instance>(const std::vector<std::string>& arguments)> maker;
  std::unique_ptr<Instance> make(const std::vector<std::string>& arguments = {}) const { return maker(arguments); }
};

void register_command(Command command);

// Options, and what a command does with them; members that the options lack are left out.
template <class Options>
std::unique_ptr<Command::Instance> command_instance(std::shared_ptr<Options> options, int (*run)(const Options&)) {
  auto instance = std::make_unique<Command::Instance>();
  instance->table = OptionTable::of(*options);
  instance->resolve = [options](OptionTable& table) {
    if constexpr (requires { options->resolve(table); }) options->resolve(table);
  };
  instance->check = [options] {
    if constexpr (requires { options->check(); }) options->check();
  };
  instance->fetch = [options] {
    if constexpr (requires { options->fetch(); }) options->fetch();
  };
  const auto& inner = innermost(*options);
  if constexpr (requires { options->ranks(); })
    instance->ranks = [options] { return options->ranks(); };
  else if constexpr (requires { inner.ranks(); })
    instance->ranks = [options] { return innermost(*options).ranks(); };
  if constexpr (requires { inner.ranks_dir(); })
    instance->ranks_dir = [options] { return innermost(*options).ranks_dir(); };
  if constexpr (requires { inner.restarts(); }) {
    instance->restarts = [options] { return innermost(*options).restarts(); };
    instance->again = [options](std::vector<std::string> given, std::filesystem::file_time_type began) {
      return innermost(*options).again(std::move(given), began);
    };
  }
  instance->run = [options, run] { return run(*options); };
  instance->is_dry = [options] {
    if constexpr (requires { innermost(*options).common; }) return innermost(*options).common.dry_run;
    return false;
  };
  if constexpr (requires(OptionTable & v) { innermost(*options).prepare_plan(v, 1); })
    instance->planned = Planned::of(options);
  instance->rehearse = [options](Rehearsal& r) {
    if constexpr (requires { options->rehearse(r); }) options->rehearse(r);
  };
  return instance;
}

template <class Options>
struct RegisterCommand {
  // `usual`: what the options are before anything is said.
  RegisterCommand(CommandInfo info, int (*run)(const Options&), const Options& usual = {}) {
    register_command({std::move(info), [run, usual](const std::vector<std::string>&) {
                        return command_instance(std::make_shared<Options>(usual), run);
                      }});
  }
};

const Command* find_command(std::string name);  // by name or alias, hyphens or underscores
std::vector<const Command*> all_commands();     // in the order of the overview

// Parses, completes, checks and runs. `defaults` are values that the user's arguments override.
// Answers --help and --print-config itself.
int run_command(const Command& command, const std::vector<std::string>& arguments, const Json& defaults,
                const std::string& program);
// `word`: as of OptionTable::help.
std::string command_help(const Command& command, const std::string& program, int width,
                         const std::vector<std::string>& arguments = {}, const std::string& word = "");
std::string overview(const std::vector<const Command*>& commands, const std::string& program, int width);

}  // namespace apus
