// SPDX-License-Identifier: Apache-2.0
// What a checkpoint that is run gives: words, labels, a vector, a score; and how that is read off.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/vector_files.h"
#include "cli/option_groups.h"
#include "text/rerank_prompt.h"

namespace apus {

struct TaskOptions {
  std::string pooling = "last";
  std::optional<std::string> prompt_name;
  RerankWords words;
  bool reranker_use_activation = true;
  void fields(OptionTable& v, ModelOptions& model);
  // How a text's vector is read off its states; what --pooling says, and the files of the model besides.
  VectorForm vector_form(const std::string& model) const;
  // Around AdapterOptions::resolve(), which takes settings from the run that made the model.
  void before_resolve(const OptionTable& v);
  void after_resolve(const OptionTable& v, const ModelOptions& model);
  // When the model is a folder here: fills model.task_type where nobody has said it, how vectors are read off, and
  // whether texts are chats.
  void settle(ModelOptions& model, TemplateOptions& prompt, const std::string& adapter);

 private:
  void settle_vectors(ModelOptions& model, TemplateOptions& prompt, bool encoder);
  bool template_said_ = false, pooling_said_ = false, task_of_run_ = false;
};

inline bool gives_words(const ModelOptions& model) { return model.task_type == "causal_lm" || model.task_type.empty(); }
inline bool has_score_head(const ModelOptions& model) {
  return model.task_type == "seq_cls" || model.task_type == "token_cls" || model.task_type == "reranker";
}

}  // namespace apus
