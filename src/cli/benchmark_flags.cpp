// SPDX-License-Identifier: Apache-2.0
#include "cli/benchmark_flags.h"

#include "base/error.h"
#include "cli/train.h"

namespace apus {

void BenchmarkFlags::fields(OptionTable& v) {
  v("eval_dataset", eval_dataset,
    "known questions to ask at every evaluation, as apus eval takes them: gsm8k, mmlu=rows.jsonl, ...");
  v("eval_limit", eval_limit, "ask only the first n rows of each set").at_least(1);
  v("eval_dataset_args", eval_dataset_args, "by set, as apus eval takes it: {\"gsm8k\": {\"few_shot_num\": 2}}");
  v("eval_generation_config", eval_generation_config, "{\"max_tokens\", \"temperature\", ...} of its answers");
  v("eval_run_code", eval_run_code, "humaneval: run the programs that the model writes");
  v("eval_use_evalscope", eval_use_evalscope, "what naming --eval_dataset does, which it needs");
}

void BenchmarkFlags::check() const {
  require(asks_benchmarks() || !eval_use_evalscope, Fault::Usage,
          "--eval_use_evalscope asks known questions at every evaluation: name them with --eval_dataset");
  require(asks_benchmarks() || (!eval_limit && eval_dataset_args.is_null() && eval_generation_config.is_null()),
          Fault::Usage, "--eval_limit, --eval_dataset_args and --eval_generation_config belong to --eval_dataset");
}

EvalOptions BenchmarkFlags::evaluation(const ModelOptions& model, const TemplateOptions& prompt, bool rehearsed) const {
  EvalOptions eval;
  OptionTable flags = OptionTable::of(eval);
  flags.set("model", model.model), flags.set("load_args", false), flags.set("eval_dataset", eval_dataset);
  if (eval_limit) flags.set("eval_limit", *eval_limit);
  flags.set("eval_run_code", eval_run_code);
  eval.eval_dataset_args = eval_dataset_args, eval.eval_generation_config = eval_generation_config;
  eval.infer.model.use_hf = model.use_hf, eval.infer.model.hub_token = model.hub_token,
  eval.infer.common.dry_run = rehearsed;
  eval.resolve(flags);
  eval.check();
  for (const std::string& name : eval_dataset)
    require(!benchmark_named(named_rows(name).first).pictures, Fault::Usage, "--eval_dataset ", name,
            " is asked about pictures, by apus eval alone: ask the checkpoints with it");
  eval.infer.prompt = prompt;
  return eval;
}

}  // namespace apus
