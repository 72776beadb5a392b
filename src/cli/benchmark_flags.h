// SPDX-License-Identifier: Apache-2.0
// Known questions that a training run asks at every evaluation: `apus eval` of the model as it stands.
#pragma once

#include "cli/eval.h"

namespace apus {

struct BenchmarkFlags {
  std::vector<std::string> eval_dataset;  // these as EvalOptions has them; empty: nothing is asked
  Json eval_dataset_args, eval_generation_config;
  std::optional<int64_t> eval_limit;
  bool eval_run_code = false, eval_use_evalscope = false;

  void fields(OptionTable& v);
  void check() const;
  bool asks_benchmarks() const { return !eval_dataset.empty(); }
  // What is asked, checked; `prompt` is how the run reads its rows.
  EvalOptions evaluation(const ModelOptions& model, const TemplateOptions& prompt, bool rehearsed = false) const;
};

}  // namespace apus
