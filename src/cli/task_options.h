// SPDX-License-Identifier: Apache-2.0
// What a checkpoint that is run gives: words, labels, a vector, a score; and how that is read off.
#pragma once

#include "cli/option_groups.h"
#include "text/rerank_prompt.h"

namespace apus {

struct TaskOptions {
  std::string pooling = "last";
  RerankWords words;
  bool reranker_use_activation = true;
  void fields(OptionTable& v, ModelOptions& model);
  // Around AdapterOptions::resolve(), which takes settings from the run that made the model.
  void before_resolve(const OptionTable& v);
  void after_resolve(const OptionTable& v, const ModelOptions& model);
  // When the model is a folder here: fills model.task_type where nobody has said it, and whether texts are chats.
  void settle(ModelOptions& model, TemplateOptions& prompt, const std::string& adapter);

 private:
  bool template_said_ = false, task_of_run_ = false;
};

inline bool gives_words(const ModelOptions& model) { return model.task_type == "causal_lm" || model.task_type.empty(); }
inline bool has_score_head(const ModelOptions& model) {
  return model.task_type == "seq_cls" || model.task_type == "reranker";
}

}  // namespace apus
