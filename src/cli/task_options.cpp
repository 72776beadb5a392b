// SPDX-License-Identifier: Apache-2.0
#include "cli/task_options.h"

#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "checkpoint/adapter_config.h"
#include "models/spec/family.h"
#include "models/spec/score_head.h"

namespace apus {
namespace fs = std::filesystem;

void TaskOptions::fields(OptionTable& v, ModelOptions& model) {
  model.task_type.clear();
  v.at("task_type")
      .choices({"causal_lm", "seq_cls", "token_cls", "embedding", "reranker", "generative_reranker"})
      .shown_default("what the checkpoint is for")
      .restored("model");
  v.at("task_type").help = "what the model gives: words, labels, a vector, a score for a query and a document";
  v("pooling", pooling,
    "embedding: a text's vector is the state of its last token, of its first (cls), or made of all: their mean, ...")
      .choices(pooling_names())
      .shown_default("what the checkpoint says")
      .restored("model");
  v("prompt_name", prompt_name,
    "embedding: which of the checkpoint's prompts (config_sentence_transformers.json) is put in front of each text")
      .shown_default("its default_prompt_name, where it has one");
  words.fields(v);
  v("reranker_use_activation", reranker_use_activation, "reranker: scores between 0 and 1 (a sigmoid); false: plain");
}

void TaskOptions::before_resolve(const OptionTable& v) {
  template_said_ = v.given("use_chat_template"), pooling_said_ = v.given("pooling");
}

void TaskOptions::after_resolve(const OptionTable& v, const ModelOptions& model) {
  task_of_run_ = !model.task_type.empty() && !v.given("task_type");
}

namespace {

// Empty where there is none.
Json config_of(const std::string& model) {
  const fs::path file = fs::path(model) / "config.json";
  std::error_code code;
  return fs::exists(file, code) ? parse_json(read_file(file, 16 << 20), file.string(), Fault::Model) : Json::object();
}

// The task of a head of numbers, of the checkpoint or of the adapter; "": there is none.
std::string labelling_task(const Json& config, const std::string& adapter) {
  if (const auto head = score_head_of(config)) return head->each_token ? "token_cls" : "seq_cls";
  const std::string task = adapter.empty() ? "" : read_adapter_config(adapter).task_type;
  return task == "SEQ_CLS" ? "seq_cls" : task == "TOKEN_CLS" ? "token_cls" : "";
}

}  // namespace

void TaskOptions::settle(ModelOptions& model, TemplateOptions& prompt, const std::string& adapter) {
  const Json config = config_of(model.model);
  const bool encoder = is_encoder(config);
  if (const std::string task = labelling_task(config, adapter); gives_words(model) && !task.empty())
    model.task_type = task;
  if (model.task_type.empty() || model.task_type == "embedding") settle_vectors(model, prompt, encoder);
  if (model.task_type.empty()) model.task_type = "causal_lm";
  require(
      !encoder || !gives_words(model), Fault::Usage, "--task_type causal_lm: ", model.model,
      " is an encoder, which gives no words; leave the flag out, or give embedding, reranker, seq_cls or token_cls");
  require(!prompt_name || model.task_type == "embedding", Fault::Usage,
          "--prompt_name is of --task_type embedding, and ", model.model, " gives something else");
  if (!encoder) return;
  require(!template_said_ || !prompt.use_chat_template, Fault::Usage, "--use_chat_template true: ", model.model,
          " is an encoder, which reads plain texts; leave it out");
  prompt.encoder = true, prompt.use_chat_template = false;
}

void TaskOptions::settle_vectors(ModelOptions& model, TemplateOptions& prompt, bool encoder) {
  const auto form = read_vector_files(model.model);
  if ((form || encoder) && model.task_type.empty()) model.task_type = "embedding";
  if (model.task_type != "embedding") return;
  // Where no file says it, sentence-transformers takes the mean of an encoder's states.
  if (!pooling_said_ && !task_of_run_ && (form || encoder))
    pooling = pooling_name(form ? form->pooling : Pooling::Mean);
  const std::string name = prompt_name.value_or(form ? form->usual_prompt : "");
  if (!name.empty()) {
    const auto found = form ? form->prompts.find(name) : std::map<std::string, std::string>::const_iterator();
    std::vector<std::string> known;
    if (form)
      for (const auto& [each, text] : form->prompts) known.push_back(each);
    require(form && found != form->prompts.end(), Fault::Usage, "--prompt_name ", name, ": ", model.model,
            known.empty() ? " has no prompts (config_sentence_transformers.json)" : " has the prompts " + join(known));
    prompt.text_prefix = found->second;
  }
  // A vector is that of the plain text, unless the run that made the model had it otherwise.
  if (!template_said_ && !task_of_run_) prompt.use_chat_template = false;
}

VectorForm TaskOptions::vector_form(const std::string& model) const {
  VectorForm form = read_vector_files(model).value_or(VectorForm());
  form.pooling = pooling_named(pooling);
  return form;
}

}  // namespace apus
