// SPDX-License-Identifier: Apache-2.0
// `apus sample`: many answers to each question, judged by reward functions; the best become rows for training
// (rejection fine-tuning), with the worst beside them as `rejected_response`.
#pragma once

#include "cli/infer.h"
#include "reward/reward_options.h"

namespace apus {

struct SampleOptions {
  InferOptions infer;  // how they are asked
  RewardOptions reward;
  std::vector<std::string> dataset;
  std::string sampler_type = "sample", sampler_engine = "engine";  // engine, no, client and other programs' names
  std::optional<std::string> orm_model;                            // an old name of a reward: math is accuracy
  double reward_threshold = 0;
  std::optional<std::string> prm_model;  // a folder, external:PROGRAM, or one of --external_plugins
  std::string prm_step_separator;
  double prm_threshold = 0;
  std::string output_dir = "sample_output", output_file;
  bool override_exist_file = false;
  int64_t num_return_sequences = 64, n_best_to_keep = 5;
  std::vector<double> data_range;  // part, parts
  std::optional<double> easy_query_threshold;
  std::vector<std::string> cache_files;  // of earlier runs without rewards
  Json engine_kwargs;

  std::string result_file() const;
  void fields(OptionTable& v);
  void resolve(OptionTable& v);
  void check() const;
  void fetch();
  void rehearse(Rehearsal& r) const;
  InferOptions& inner() { return infer; }

  struct Asked {
    Json row;               // all its columns, messages without the answer
    std::string label, id;  // the row's own answer; which row it is
    std::vector<Json> answers = {};
  };
  std::vector<Asked> asked;  // after fetch()
};

// What becomes of one question's answers.
struct Choice {
  std::vector<size_t> kept;  // best first
  size_t worst = 0;
};
// Those above `threshold`, at most `best`; none where more than `easy` of all are (the question teaches nothing).
Choice best_answers(const std::vector<double>& scores, int64_t best, double threshold, std::optional<double> easy);
// The same by rewards and what a process reward model says, of which one may be empty. An answer has to be above both
// thresholds; the order is that of ten times the reward and once the other, each between 0 and 1 over the question's
// answers. Only rewards make a question easy.
struct Marks {
  std::vector<double> rewards, process;
};
Choice best_answers(const Marks& marks, int64_t best, double reward_threshold, double prm_threshold,
                    std::optional<double> easy);

}  // namespace apus
