// SPDX-License-Identifier: Apache-2.0
// The options of `apus infer`; its body is run/infer.cpp.
#pragma once

#include "cli/answer_ranks.h"
#include "cli/speech_options.h"
#include "cli/task_options.h"
#include "data/results/row_book.h"
#include "quant/wish.h"

namespace apus {

class Rehearsal;  // cli/rehearsal.h
struct DeviceFacts;
struct PlanSpec;

struct InferOptions {
  ModelOptions model;
  PlacementOptions placement;
  AdapterOptions adapters;
  TemplateOptions prompt;
  GenerationOptions answers;
  EngineOptions engine;
  TaskOptions task;
  RankOptions mesh;
  RunOptions common;
  quant::Wish quantise;                  // of a plain checkpoint's weights, while they are loaded
  std::vector<std::string> val_dataset;  // as --dataset of sft, or "-", standard input; none: a chat
  Json columns;
  bool disable_auto_column_mapping = false;
  std::string encoding;  // of text files; empty: UTF-8
  std::vector<std::string> model_name, model_author, custom_dataset_info;
  std::optional<int64_t> val_dataset_sample;  // only the first n rows
  bool load_data_args = false;                // the rows that the training run kept for validation
  std::string audio_dir;                      // of the answers' sounds; empty: they are not spoken
  SpeechOptions speech;
  bool strict = false;      // stop at the first bad row
  std::string result_path;  // empty: chosen by the run and said
  bool resume = true;
  int64_t write_batch_size = 1000;  // rows between flushes; -1: at the end
  // "engine": continuous batching; "pt": one batch after the other.
  std::string infer_backend = "engine";
  bool use_installed_backend = false;     // another program's name in infer_backend means that program
  std::optional<int64_t> max_batch_size;  // with "pt" (1 when absent); <= 0: all
  std::optional<std::string> metric;      // "acc", "rouge" or "external:PROGRAM"
  std::function<void(const Json& row, const Json& record)> on_answer;  // told of each; of `apus eval`
  std::string base_url;                                                // with "client": where the server is
  std::string api_key;           // empty: OPENAI_API_KEY of the environment, if any
  int64_t max_concurrency = 16;  // requests at once
  int64_t max_retries = 6;       // of one request

  bool client() const { return infer_backend == "client"; }
  bool interactive() const { return val_dataset.empty(); }
  void fields(OptionTable& v);
  void resolve(OptionTable& v);
  void check() const;
  void fetch() {
    rows = question_sets();
    if (client()) return;  // there the model's name is the other server's business
    model.fetch();
    speech.settle(model, /*now=*/true);
    if (speech.alone) return fetch_texts();
    task.settle(model, prompt, adapters.first());
    mesh.settle(model);
    require(gives_words(model) || !interactive(), Fault::Usage, "this model gives no words to chat with (--task_type ",
            model.task_type, "): give it rows by --val_dataset");
    for (QuestionSet& set : rows) set.whole = !gives_words(model);
  }
  void fetch_texts();                              // of a model that only speaks
  std::vector<QuestionSet> question_sets() const;  // the files behind val_dataset; a hub's are downloaded
  std::vector<QuestionSet> rows;                   // they, after fetch()
  void rehearse(Rehearsal& r) const;
  void prepare_plan(OptionTable& v, int64_t devices);
  PlanSpec plan_spec(const Json& config, const DeviceFacts& device, int64_t devices = 1) const;
  int64_t ranks() const { return client() ? 1 : mesh.ranks_of_all(); }
  std::filesystem::path ranks_dir() const;
};

// Says to the rows' readers whether the model takes images, videos and sounds.
void take_media(const InferOptions& options, std::vector<QuestionSet>& rows);
RowBook::Spec row_book_spec(const InferOptions& options, const std::string& result_path);
// Beside the model, or here when it is a server's; named after the time.
// An unfinished one is gone on with by naming it.
std::string default_result_path(const InferOptions& options);

}  // namespace apus
