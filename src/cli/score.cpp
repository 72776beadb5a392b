// SPDX-License-Identifier: Apache-2.0
#include "cli/score.h"

#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/nearby.h"
#include "cli/command.h"
#include "cli/plan_spec.h"
#include "cli/rehearsal.h"
#include "data/read/byte_source.h"
#include "data/source/dataset_ref.h"

namespace apus {

void ScoreOptions::fields(OptionTable& v) {
  model.fields(v);
  quantise.honour(v);
  placement.fields(v);
  adapters.fields(v);
  v.refuse({"load_data_args"}, "give the rows to --dataset");
  v.group("Rows and results");
  v("dataset", dataset,
    "files of rows, of every kind that sft reads: {\"input_ids\", \"labels\"?}, {\"text\"} or {\"messages\"}; - reads "
    "standard input; #N behind a name takes its first N rows")
      .common()
      .required()
      .alias("val_dataset");
  encoding_field(v, encoding);
  v("result_path", result_path, "JSONL file of log-probabilities, one object per row")
      .common()
      .shown_default("standard output");
  v("dump_logits", dump_logits, "safetensors file for logits.<row> [T, vocab] and hidden.<row> [T, D] in float32")
      .common();
  v("packed", packed, "several rows in one forward; false: one by one");
  v("max_batched_tokens", max_batched_tokens, "most tokens of one packed forward").at_least(1);
  v("strict", strict, "stop at the first bad row instead of reporting it in its place");
  plain_rows_fields(v);
  prompt.fields(v);
  text_alone(v);
  without_effect<GenerationOptions>(v, "nothing is generated");
  untrained_fields(v);
  mesh.fields(v);
  common.fields(v);
}

void ScoreOptions::resolve(OptionTable& v) {
  adapters.resolve(v, model);
  model.HubFlags::resolve();
  mesh.resolve(v);
  prompt.resolve(v);
}

void ScoreOptions::check() const {
  model.check();
  quantise.check();
  placement.check(model);
  mesh.check(model, placement, quantise.any());
  check_encoding(encoding);
  for (const File& file : files())  // said before the model is loaded
    require(file.path == "-" || std::filesystem::exists(file.path), Fault::Io, "--dataset ", file.path, " is not here",
            nearby(file.path));
}

std::vector<ScoreOptions::File> ScoreOptions::files() const {
  std::vector<File> out;
  for (const std::string& text : dataset) {
    File& file = out.emplace_back(File{text, {}});
    if (text != "-" && !std::filesystem::exists(text)) file.rows = take_count(file.path, text);
  }
  return out;
}

// Every process would score all rows: it is for those that hold a part of the model.
std::filesystem::path ScoreOptions::ranks_dir() const {
  if (!mesh.shares_parts()) return {};
  const std::filesystem::path named = result_path == "-" ? "" : result_path;
  return (named.has_parent_path() ? named.parent_path() : ".") / "logs" / local_time("%Y%m%d-%H%M%S");
}

void ScoreOptions::prepare_plan(OptionTable& v, int64_t devices) {
  mesh.prepare_plan(v, model, placement, quantise.any(), devices);
}

PlanSpec ScoreOptions::plan_spec(const Json& config, const DeviceFacts& facts, int64_t devices) const {
  PlanSpec spec = scoring_spec(model, max_batched_tokens, config, facts);
  hold_quantised(spec, config, quantise);
  mesh.lay_out(spec, devices);
  return spec;
}

void ScoreOptions::rehearse(Rehearsal& r) const {
  const Json config = r.model(model.model);
  r.adapters(adapters.folders);
  r.tokenizer(model.model);
  std::vector<std::string> paths;
  for (const File& file : files()) paths.push_back(file.path);
  r.json_rows(paths, encoding);
  for (const std::string& file : {result_path, dump_logits})
    if (!file.empty() && file != "-") r.output(file);
  if (placement.placed()) return r.placement({model, placement, nullptr, adapters.first()});
  r.plan(plan_spec(config, device_facts(model.device)));
}

namespace {
int run(const ScoreOptions& options) { return run_heavy("score", &options); }
const RegisterCommand<ScoreOptions> score_command(
    {.name = "score",
     .group = "Run",
     .summary = "log-probabilities, loss and perplexity of given texts",
     .examples = {"score --model DIR --dataset texts.jsonl --result_path scores.jsonl",
                  "score --model DIR --dataset ids.jsonl --dump_logits out.safetensors --torch_dtype float32"}},
    run);
}  // namespace

}  // namespace apus
