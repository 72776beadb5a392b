// SPDX-License-Identifier: Apache-2.0
// The options of `apus sft` and `apus pt`; their body is run/sft.cpp.
#pragma once

#include <filesystem>

#include "cli/option_groups.h"
#include "cli/train_options.h"

namespace apus {

class Rehearsal;  // cli/rehearsal.h

struct SftOptions : ModelOptions,
                    TemplateOptions,
                    DataOptions,
                    TunerOptions,
                    TrainOptions,
                    GenerationOptions,  // of --predict_with_generate
                    RunOptions {
  SftOptions();
  std::string command = "sft";
  std::string model_name;   // as --model was given: the run's folder is named after it
  Json all;                 // every option and its value, for args.json
  std::string config_file;  // copied beside it

  double lr() const { return learning_rate.value_or(lora() ? 1e-4 : 1e-5); }
  int64_t accumulation(int64_t ranks) const;
  void check_update_in_backward(int64_t ranks) const;
  std::filesystem::path output_root() const;  // under which run folders are made
  std::filesystem::path ranks_dir() const;
  void fields(OptionTable& v);
  void resolve(OptionTable& v);
  void check() const;
  void rehearse(Rehearsal& r) const;
};

// What --dry_run true asks of libapus.so: the rows read and encoded as the run would, into a folder that goes again.
struct SftRehearsal {
  const SftOptions& options;
  std::string& text;  // answered: about the rows
  int64_t& longest;   // tokens of the longest; 0: not known beforehand
};

struct PtOptions : SftOptions {  // continued pre-training: plain text, every token is learnt
  PtOptions();
  void fields(OptionTable& v);
};

}  // namespace apus
