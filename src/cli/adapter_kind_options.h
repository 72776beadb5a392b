// SPDX-License-Identifier: Apache-2.0
// Options of adapters besides LoRA: of every other --tuner_type that is an adapter.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "checkpoint/adapter_config.h"

namespace apus {

struct AdapterKindOptions {
  int64_t adalora_init_r = 12, bone_rank = 4;
  int64_t adapter_length = 128, vera_rank = 256;
  double vera_dropout = 0;
  std::string adapter_act = "gelu";
  AdaLoraSettings adalora;
  BoftSettings boft;
  FourierSettings fourier;
  VeraSettings vera;
  int64_t num_virtual_tokens = 20;
  std::string prompt_tuning_init = "sample_vocab", prompt_tuning_init_text;
  void fields(OptionTable& v);
  // Whether an option of tuners is read with this one.
  bool reads(const std::string& option, const std::string& tuner_type) const;
  // Notes on those that were given and belong to another kind.
  void note_others(OptionTable& v, const std::string& tuner_type) const;
  // Fills in what this kind is described by.
  void describe(const std::string& tuner_type, LoraConfig& config) const;
};

}  // namespace apus
