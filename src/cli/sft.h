// SPDX-License-Identifier: Apache-2.0
// The options of `apus sft` and `apus pt`; their body is run/sft.cpp.
#pragma once

#include <filesystem>

#include "cli/option_groups.h"
#include "cli/train_options.h"

namespace apus {

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
  std::filesystem::path output_root() const;  // under which run folders are made
  std::filesystem::path ranks_dir() const;
  void fields(OptionTable& v);
  void resolve(OptionTable& v);
  void check() const;
};

struct PtOptions : SftOptions {  // continued pre-training: plain text, every token is learnt
  PtOptions();
  void fields(OptionTable& v);
};

}  // namespace apus
