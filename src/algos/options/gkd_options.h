// SPDX-License-Identifier: Apache-2.0
// The options of distillation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "environment/environment_options.h"
#include "train/options/algorithm_options.h"
#include "train/options/rollout_options.h"

namespace apus {

// A server that is the teacher of the rows with one of these tags; none: of all.
struct TeacherPlace {
  std::string url;
  std::vector<std::string> tags;
};

struct GkdOptions : RolloutServerOptions, EnvironmentOptions {
  std::optional<std::string> teacher_model;
  std::vector<std::string> teacher_adapters;  // one folder, or none
  std::optional<std::string> teacher_model_server;
  std::string teacher_tag_key = "dataset";
  double lmbda = 0.5, beta = 0.5, sft_alpha = 0;
  bool seq_kd = false;
  std::optional<int64_t> gkd_logits_topk;
  int64_t max_completion_length = 512;
  bool log_completions = false;

  // Without a teacher of its own the model learns from what it was.
  bool uses_reference() const { return !teacher_model && !teacher_model_server; }
  std::vector<TeacherPlace> teacher_places() const;  // that teacher_model_server names
  std::vector<OtherModel> other_models();
  void fields(OptionTable& v);
  void check() const;

 private:
  void check_places() const;
};

}  // namespace apus
