// SPDX-License-Identifier: Apache-2.0
// The options of `apus infer`; its body is run/infer.cpp.
#pragma once

#include "cli/option_groups.h"

namespace apus {

class Rehearsal;  // cli/rehearsal.h

struct InferOptions : ModelOptions, AdapterOptions, TemplateOptions, GenerationOptions, EngineOptions, RunOptions {
  std::vector<std::string> val_dataset;     // files of rows, "-" is standard input; none: a chat
  std::optional<int64_t> val_dataset_sample;  // only the first n rows
  bool load_data_args = false;              // the rows that the training run kept for validation
  bool strict = false;                      // stop at the first bad row
  std::string result_path;                  // empty: chosen by the run and said
  bool resume = true;
  int64_t write_batch_size = 1000;          // rows between flushes; -1: at the end
  std::string infer_backend = "engine";     // "engine": continuous batching; "pt": one batch after the other
  std::optional<int64_t> max_batch_size;    // with "pt" (1 when absent); <= 0: all
  std::optional<std::string> metric;        // "acc" or "rouge"

  bool interactive() const { return val_dataset.empty(); }
  void fields(OptionTable& v);
  void resolve(OptionTable& v);
  void check() const;
  void rehearse(Rehearsal& r) const;
};

}  // namespace apus
