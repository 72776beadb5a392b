// SPDX-License-Identifier: Apache-2.0
#include "cli/task_options.h"

#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/adapter_config.h"
#include "checkpoint/vector_files.h"
#include "models/spec/score_head.h"

namespace apus {
namespace fs = std::filesystem;

void TaskOptions::fields(OptionTable& v, ModelOptions& model) {
  model.task_type.clear();
  v.at("task_type")
      .choices({"causal_lm", "seq_cls", "embedding", "reranker", "generative_reranker"})
      .shown_default("what the checkpoint is for")
      .restored("model");
  v.at("task_type").help = "what the model gives: words, labels, a vector, a score for a query and a document";
  v("pooling", pooling, "embedding: a text's vector is the state of its last token, or the mean of all")
      .choices({"last", "mean"})
      .shown_default("what the checkpoint says")
      .restored("model");
  words.fields(v);
  v("reranker_use_activation", reranker_use_activation, "reranker: scores between 0 and 1 (a sigmoid); false: plain");
}

void TaskOptions::before_resolve(const OptionTable& v) { template_said_ = v.given("use_chat_template"); }

void TaskOptions::after_resolve(const OptionTable& v, const ModelOptions& model) {
  task_of_run_ = !model.task_type.empty() && !v.given("task_type");
}

namespace {

bool is_classifier(const std::string& model, const std::string& adapter) {
  const fs::path file = fs::path(model) / "config.json";
  std::error_code code;
  if (fs::exists(file, code) && score_head_of(parse_json(read_file(file, 16 << 20), file.string(), Fault::Model)))
    return true;
  return !adapter.empty() && read_adapter_config(adapter).task_type == "SEQ_CLS";
}

}  // namespace

void TaskOptions::settle(ModelOptions& model, TemplateOptions& prompt, const std::string& adapter) {
  if (gives_words(model) && is_classifier(model.model, adapter)) model.task_type = "seq_cls";
  if (model.task_type.empty() || model.task_type == "embedding") {
    const auto form = read_vector_files(model.model);
    if (form && model.task_type.empty()) model.task_type = "embedding";
    if (form && !task_of_run_) pooling = form->mean ? "mean" : "last";
  }
  if (model.task_type.empty()) model.task_type = "causal_lm";
  // A vector is that of the plain text, unless the run that made the model had it otherwise.
  if (model.task_type == "embedding" && !template_said_ && !task_of_run_) prompt.use_chat_template = false;
}

}  // namespace apus
