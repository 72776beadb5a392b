// SPDX-License-Identifier: Apache-2.0
// `apus eval`: known questions, asked as `apus infer` asks them (of a checkpoint, or of a server), or by the
// log-probabilities of their choices as `apus score` gives them; a table and files of the results.
#pragma once

#include <filesystem>
#include <map>

#include "cli/infer.h"
#include "reward/benchmark.h"

namespace apus {

struct EvalOptions {
  InferOptions infer;                     // how they are asked
  std::vector<std::string> eval_dataset;  // name, or name=files
  Json eval_dataset_args;                 // {name: {"dataset_id", "subset_list", "few_shot_num"}}
  std::optional<int64_t> eval_limit;      // rows of each set
  std::string eval_output_dir = "eval_output";
  std::string eval_method = "generate";  // generate, logprobs
  std::string eval_prompts = "chat";     // chat, lm_eval
  std::string eval_backend = "Native";
  Json eval_generation_config;
  int64_t num_samples = 1;     // answers to each question
  bool eval_run_code = false;  // answers that are programs are run

  struct Question {
    size_t set;  // of eval_dataset
    BenchmarkItem item;
    Json row;
    std::vector<BenchmarkItem> examples = {};  // that stand before it with their answers
  };
  std::vector<Question> questions;  // after fetch()
  std::string folder;               // of the results

  bool plain() const { return eval_prompts == "lm_eval"; }
  // Whether the likeliest choice is the answer, and nothing is written.
  bool compares(const Question& question) const;
  std::vector<std::string> metrics_of(size_t set) const;  // the first one counts

  void fields(OptionTable& v);
  void resolve(OptionTable& v);
  void check() const;
  void read_questions();
  void fetch();
  void rehearse(Rehearsal& r) const;
  InferOptions& inner() { return infer; }

 private:
  void take_generation_config(OptionTable& v);
  void take_plain_ends(OptionTable& v);
  Json settings_of(size_t set) const;
  void read_set(size_t set);
  void check_pictures() const;
  // A question's pictures as entries of a row: those that are not files are written into the run's folder.
  void keep_pictures(Question& question, const Origin& origin) const;
};

// A question as a talk; examples are earlier turns.
Json messages_of(const EvalOptions::Question& question);
// That asks it.
const Benchmark& benchmark_of(const EvalOptions& options, const EvalOptions::Question& question);
// What an answer is worth by a metric of metrics_of.
double mark_of(const EvalOptions& options, const EvalOptions::Question& question, const std::string& answer,
               size_t metric = 0);
// What each answer is worth; an empty one is none, and worth nothing. `known`: marks that were given already, nan where
// none was.
std::vector<double> eval_marks(const EvalOptions& options, const std::vector<std::string>& answers,
                               const std::vector<double>& known = {}, size_t metric = 0);

struct LikeliestChoice {
  size_t whole = 0;  // by the sum over its tokens; of endings of a chat's text by the mean over bytes
  size_t mean = 0;   // by the mean over characters
};
// Of each question that compares its choices; of others nothing is asked.
std::vector<LikeliestChoice> likeliest_choices(const EvalOptions& options);
// Each answer with its question and mark, as lines of JSON; those that are none only with `all`.
void write_reviews(const EvalOptions& options, const std::filesystem::path& file,
                   const std::vector<std::string>& answers, const std::vector<double>& marks, bool all = false);

// "mmlu=rows.jsonl" as its two parts; the second empty: the hub's.
std::pair<std::string, std::string> named_rows(const std::string& text);

struct EvalScore {
  std::string set, metric, group;  // group empty: all of them
  int64_t count = 0;
  double score = 0;  // the mean
  size_t place = 0;  // of the set among those that were asked
};
// Of each set, and of each of its groups where it has several. marks: of every answer, num_samples for each question;
// with several there is a line too for how many questions have at least one right answer (pass@n).
// By a metric of metrics_of, of the sets that have it.
std::vector<EvalScore> eval_scores(const EvalOptions& options, const std::vector<double>& marks, size_t metric = 0);

}  // namespace apus
