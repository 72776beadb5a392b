// SPDX-License-Identifier: Apache-2.0
#include "cli/infer.h"

#include "base/error.h"
#include "cli/command.h"

namespace apus {

void InferOptions::fields(OptionTable& v) {
  ModelOptions::fields(v);
  v.refuse({"adapters", "lora", "load_args", "load_data_args"}, "adapters are not loaded by this command yet: merge them into the model first");
  v.group("Rows and results");
  v("val_dataset", val_dataset, "files of rows (JSONL with messages, or query); - reads standard input; without it: a chat");
  v("val_dataset_sample", val_dataset_sample, "only the first n rows").at_least(1);
  v("strict", strict, "stop at the first bad row instead of leaving it out");
  v("result_path", result_path, "JSONL file of the answers").shown_default("<model>/infer_result/<time>.jsonl");
  v("resume", resume, "go on with the result file of an interrupted run; false: begin it anew");
  v("write_batch_size", write_batch_size, "rows between writes; -1: once, at the end").at_least(-1);
  v("metric", metric, "compare the answers with the rows' own (the last assistant message): acc is exact equality; rouge is rouge-1, -2, -l and bleu-4, Chinese by characters").choices({"acc", "rouge"});
  v("infer_backend", infer_backend, "engine: many rows at once, joining and leaving freely. pt: fixed batches of --max_batch_size")
      .choices({"engine", "pt", "transformers", "vllm", "sglang", "lmdeploy"});
  v("max_batch_size", max_batch_size, "rows of a batch with pt; 0 or less: all").shown_default("1");
  v.refuse({"dataset"}, "give the rows to --val_dataset");
  v.refuse({"reranker_use_activation"}, "this command knows causal language models only");
  plain_rows_fields(v);
  TemplateOptions::fields(v);
  GenerationOptions::fields(v);
  EngineOptions::fields(v);
  untrained_fields(v);
  RunOptions::fields(v);
}

void InferOptions::resolve(OptionTable& v) {
  TemplateOptions::resolve(v);
  if (infer_backend == "transformers") infer_backend = "pt";
}

void InferOptions::check() const {
  ModelOptions::check();
  require(infer_backend == "engine" || infer_backend == "pt", Fault::Usage, "--infer_backend ", infer_backend,
          " is not run by this program; --infer_backend engine batches continuously with a paged cache as it does");
  require(!max_batch_size || infer_backend == "pt", Fault::Usage,
          "--max_batch_size belongs to --infer_backend pt; the engine's limit is --max_num_seqs");
  require(!(interactive() && metric), Fault::Usage, "--metric needs rows to compare with: give --val_dataset");
  require(!top_logprobs || logprobs, Fault::Usage, "--top_logprobs needs --logprobs true");
}

namespace {
int run(const InferOptions& options) { return run_heavy("infer", &options); }
const RegisterCommand<InferOptions> command({.name = "infer", .group = "Run",
    .summary = "chat with a model, or answer the rows of a file",
    .examples = {"infer --model DIR", "infer --model DIR --val_dataset rows.jsonl --result_path answers.jsonl --max_new_tokens 256"}}, run);
}  // namespace

}  // namespace apus
