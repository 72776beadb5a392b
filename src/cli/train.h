// SPDX-License-Identifier: Apache-2.0
// A run of a command that trains: one command for each algorithm (`apus pt`), or for several among which an option
// chooses (`apus sft --task_type`, `apus rlhf --rlhf_type`, cli/rlhf.cpp). Their body is run/train.cpp.
#pragma once

#include <filesystem>

#include "abilities/combination.h"
#include "cli/benchmark_flags.h"
#include "cli/command.h"
#include "cli/option_groups.h"
#include "cli/push_options.h"
#include "cli/train_options.h"
#include "plan/tower_memory.h"
#include "quant/wish.h"
#include "train/options/algorithm_options.h"
#include "train/options/loop_options.h"
#include "train/options/reference_options.h"
#include "train/options/sharding_options.h"

namespace apus {

class Rehearsal;  // cli/rehearsal.h
struct DeviceFacts;
struct PlanSpec;

// Of a run's rows; nothing: they have not been read.
struct RowFacts {
  int64_t longest = 0;  // tokens of the longest; 0: not known beforehand
  MediaFacts media = {};
  int64_t good = 0, rejected = 0;  // that can be used and that cannot; known with `longest`
  std::string first_row = {};      // the columns of one, as JSON, where rows are questions
};

// A training run as a value, resolved once from flags, environment, files and other programs' flags. The plan,
// --dry_run, args.json, the trainer and resumed runs read it as it is.
struct TrainRun {
  explicit TrainRun(std::string algorithm = "sft");
  std::string algorithm;       // under which it is registered: the command's name, or its --rlhf_type or --task_type
  AlgorithmOptions own;        // its own options
  ReferenceOptions reference;  // of an algorithm that compares the policy with another model
  ModelOptions model;
  quant::Wish quantise;    // the frozen base, while it is loaded
  TemplateOptions prompt;  // how rows become text
  DataOptions data;
  TunerOptions tuner;
  LoopOptions loop;  // updates, checkpoints, evaluations
  OptimisationOptions optimisation;
  ShardingOptions mesh;       // what processes share out
  FolderOptions folder;       // what is written, and gone on from
  GenerationOptions answers;  // of --predict_with_generate and of rollouts
  BenchmarkFlags benchmarks;  // asked at every evaluation
  RunPushOptions push;        // checkpoints that go to a hub
  RunOptions common;          // what every command has

  std::string model_as_given;  // --model before a hub's id became a folder: the run's folder is named after it
  Json all;                    // every option and its value, for args.json
  Json exact, noted;           // those that a resumed run must find unchanged, and those whose change it says
  std::string config_file;     // copied beside args.json
  bool template_said = false;  // --use_chat_template was given
  bool begins_anew = false;    // --resume_from_checkpoint auto has found nothing to go on from

  double lr() const { return optimisation.learning_rate.value_or(tuner.tuner_type == "full" ? 1e-5 : 1e-4); }
  int64_t ranks() const;  // processes of the run
  // What goes together is asked of this (abilities/combination.h); `facts`: the model, once it is here.
  Combination combination(int64_t ranks, const ModelFacts* facts = nullptr) const;
  void read_plain_texts();
  void check_update_in_backward(int64_t ranks) const;
  void check_mesh(int64_t ranks) const;       // its numbers
  std::filesystem::path output_root() const;  // under which run folders are made
  std::filesystem::path ranks_dir() const;
  int64_t restarts() const { return mesh.max_restarts; }
  // The arguments that go on with this run, which began then.
  std::vector<std::string> again(std::vector<std::string> given, std::filesystem::file_time_type began) const;
  void fields(OptionTable& v);
  void resolve(OptionTable& v);
  void check() const;
  void fetch();
  void rehearse(Rehearsal& r) const;
  void prepare_plan(OptionTable& v, int64_t devices);
  // `rows`: what is known of them, once they have been read.
  PlanSpec plan_spec(const Json& config, const DeviceFacts& device, int64_t devices, const RowFacts& rows = {}) const;
  // Of such rows, what would be as exact and faster: "--per_device_train_batch_size 16 ...", and why. Empty: nothing
  // that is known here.
  std::string faster(const RowFacts& rows) const;
  // FLOPs of a token that is trained on, and what all devices could do in a second; 0: not known here.
  struct Arithmetic {
    double of_token = 0, peak = 0;
  };
  Arithmetic arithmetic(const RowFacts& rows) const;

 private:
  PlanSpec own_spec(const RowFacts& rows) const;  // of this machine
  void try_reward_programs(Rehearsal& r, const std::string& row) const;
  void algorithm_fields(OptionTable& v);
  void find_checkpoint();
  void remember_settings(const OptionTable& v);
};

// What --dry_run true asks of libapus.so: the rows read and encoded as the run would, into a folder that goes again.
struct TrainRehearsal {
  const TrainRun& options;
  std::string& text;  // answered: about the rows
  RowFacts& rows;     // answered too
};

std::unique_ptr<Command::Instance> training_command(const std::string& algorithm);
// What it is set to among the arguments, wherever it stands; unknown options are passed over.
std::string algorithm_asked_for(const std::vector<std::string>& arguments, const std::string& command,
                                const std::string& usual);

// A command for each algorithm that is one by itself.
void register_training_commands();

}  // namespace apus
