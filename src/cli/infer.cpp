// SPDX-License-Identifier: Apache-2.0
#include "cli/infer.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "cli/command.h"

namespace apus {

void InferOptions::fields(OptionTable& v) {
  ModelOptions::fields(v);
  AdapterOptions::fields(v);
  v.group("Rows and results");
  v("val_dataset", val_dataset, "files of rows (JSONL with messages, or query); - reads standard input; without it: a chat");
  v("load_data_args", load_data_args, "answer the rows that the training run kept for validation");
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

namespace {
// The validation rows of the run that wrote this checkpoint: the files it was given, or those it split off.
std::vector<std::string> kept_rows(const std::filesystem::path& checkpoint) {
  const auto path = checkpoint / "args.json";
  const Json args = Json::parse(read_file(path, 16 << 20), nullptr, /*allow_exceptions=*/false);
  require(args.is_object(), Fault::Usage, path.string(), " holds no JSON object");
  if (args.contains("val_dataset") && args["val_dataset"].is_array() && !args["val_dataset"].empty()) return args["val_dataset"].get<std::vector<std::string>>();
  const auto split = std::filesystem::absolute(checkpoint).lexically_normal().parent_path() / "val_dataset.jsonl";
  require(std::filesystem::exists(split), Fault::Usage, "--load_data_args: the run of ", checkpoint.string(),
          " kept no rows for validation (it had neither --val_dataset nor --split_dataset_ratio); give --val_dataset");
  return {split.string()};
}
}  // namespace

void InferOptions::resolve(OptionTable& v) {
  AdapterOptions::resolve(v, *this);
  HubFlags::resolve();
  TemplateOptions::resolve(v);
  if (load_data_args && val_dataset.empty()) val_dataset = kept_rows(adapters.empty() ? model : adapters.front());
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
    .examples = {"infer --model DIR", "infer --model DIR --val_dataset rows.jsonl --result_path answers.jsonl --max_new_tokens 256",
                 "infer --adapters output/v0-.../checkpoint-100 --load_data_args true"}}, run);
}  // namespace

}  // namespace apus
