// SPDX-License-Identifier: Apache-2.0
#include "cli/infer.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <variant>

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "checkpoint/checkpoint_digest.h"
#include "cli/command.h"
#include "cli/infer_client.h"
#include "cli/plan_spec.h"
#include "cli/rehearsal.h"
#include "data/read/byte_source.h"
#include "data/source/dataset_fetch.h"
#include "data/source/dataset_info.h"
#include "media/processor.h"
#include "reward/external.h"
#include "text/agent_template.h"

namespace apus {

void InferOptions::fields(OptionTable& v) {
  model.fields(v);
  quantise.honour(v);
  task.fields(v, model);
  placement.fields(v);
  adapters.fields(v);
  v.group("Rows and results");
  v("val_dataset", val_dataset,
    "rows to answer: files, folders, globs or hub ids as --dataset of sft takes; #N takes N rows; - reads standard "
    "input; without it: a chat")
      .common();
  v("load_data_args", load_data_args, "answer the rows that the training run kept for validation");
  v("val_dataset_sample", val_dataset_sample, "only the first n rows").at_least(1);
  v("strict", strict, "stop at the first bad row instead of leaving it out");
  v("result_path", result_path, "JSONL file of the answers")
      .common()
      .shown_default(
          "<checkpoint>/infer_result/<time>.jsonl, or result/<model>/infer_result/... for a model that no run made");
  v("audio_dir", audio_dir,
    "folder: speak the answers too, each into a WAV file there, which the row's \"spoken\" names. Of "
    "Qwen2.5-Omni and Qwen3-Omni")
      .shown_default("none");
  speech.voice_fields(v);
  v("resume", resume, "go on with the result file of an interrupted run; false: begin it anew");
  v("write_batch_size", write_batch_size, "rows between writes of --result_path; -1: once, at the end").at_least(-1);
  v("metric", metric,
    "judge the answers by the rows' own (the last assistant message): acc is exact equality; rouge is rouge-1, -2, -l "
    "and bleu-4, Chinese by characters. Or by what judges answers for --reward_funcs: accuracy, anls, iou, ..., "
    "external:PROGRAM")
      .common();
  v("infer_backend", infer_backend,
    "engine: many rows at once, joining and leaving freely. pt: fixed batches of --max_batch_size. client: rows are "
    "sent to the server at --base_url. vllm, sglang, lmdeploy: the engine too, as it batches and pages like them")
      .choices({"engine", "pt", "client", "transformers", "vllm", "sglang", "lmdeploy"});
  v("use_installed_backend", use_installed_backend,
    "vllm, sglang and lmdeploy mean those programs: then answer rows by their server, which deploy starts");
  v("max_batch_size", max_batch_size, "rows of a batch with pt; 0 or less: all").shown_default("1");
  v("base_url", base_url,
    "with client: an OpenAI-compatible server, such as http://127.0.0.1:8000/v1; --model is a name there then");
  v("api_key", api_key, "with client: what the server asks for").shown_default("OPENAI_API_KEY of the environment");
  v("max_concurrency", max_concurrency, "with client: requests at once").at_least(1).at_most(4096);
  v("max_retries", max_retries, "with client: how often a request is repeated after 429, 5xx or a lost connection")
      .at_least(0)
      .at_most(100);
  v.refuse({"dataset"}, "give the rows to --val_dataset, which takes the same; #N behind a name takes N of its rows");
  v.refuse({"vllm_engine_kwargs", "sglang_engine_kwargs"},
           "Apus's own engine answers; `apus deploy --infer_backend vllm` starts that program's server");
  v.no_effect({"vllm_enable_lora", "vllm_max_lora_rank"}, "an adapter of any rank is used; name it by --adapters");
  v.no_effect({"vllm_reasoning_parser"}, "answers of rows are kept whole, thoughts included");
  plain_rows_fields(v);
  v.at("columns").honoured(&columns, "rename columns: '{\"their\": \"ours\"}'");
  v.at("disable_auto_column_mapping").honoured(&disable_auto_column_mapping, "only --columns renames");
  v.at("custom_dataset_info")
      .honoured(&custom_dataset_info,
                "dataset_info.json files that give datasets names: dataset_path or hub id, subsets, columns");
  v.at("model_name")
      .honoured(&model_name, "put for {{NAME}} in the rows: one name, or the Chinese and the English one");
  v.at("model_author")
      .honoured(&model_author, "put for {{AUTHOR}} in the rows: one name, or the Chinese and the English one");
  encoding_field(v, encoding);
  prompt.fields(v);
  answers.fields(v);
  engine.fields(v);
  for (const char* name : {"vllm_pipeline_parallel_size", "vllm_enable_expert_parallel", "sglang_pp_size",
                           "sglang_ep_size", "sglang_enable_ep_moe", "sglang_enable_dp_attention"})
    v.at(name).idle_for(
        "--tensor_model_parallel_size and --expert_model_parallel_size share a model out, --device_map auto lays it "
        "over several devices");
  for (const char* name : {"vllm_data_parallel_size", "sglang_dp_size"})
    v.at(name).idle_for("rows are shared out among the copies of --data_parallel_size");
  untrained_fields(v);
  mesh.fields(v);
  mesh.copies_field(v, "they share out the rows");
  common.fields(v);
}

void InferOptions::fetch_texts() {
  require(!audio_dir.empty() && !interactive(), Fault::Usage, model.model,
          " speaks and gives no words: give it texts by --val_dataset, and a folder for their sounds by --audio_dir");
  rows = question_sets();
  for (QuestionSet& set : rows) set.whole = true;
}

namespace {
// Other programs' names for what the engine does, in scripts that were written for them.
void take_foreign_backend(InferOptions& o, OptionTable& v) {
  if (o.infer_backend != "vllm" && o.infer_backend != "sglang" && o.infer_backend != "lmdeploy") return;
  require(!o.use_installed_backend, Fault::Usage,
          "--use_installed_backend true: this command starts no other program; `", "apus deploy --infer_backend ",
          o.infer_backend, "` starts its server, and --infer_backend client asks it");
  v.notes.push_back(str("--infer_backend ", o.infer_backend,
                        ": Apus's own engine answers, which batches continuously "
                        "with a paged cache as it does"));
  o.infer_backend = "engine";
  if (o.max_batch_size)
    v.notes.push_back("--max_batch_size has no effect: the engine takes up to --max_num_seqs rows at once");
  o.max_batch_size.reset();
}

// The validation rows of the run that wrote this checkpoint: those it was given, or those it split off.
void take_kept_rows(OptionTable& v, const std::filesystem::path& checkpoint) {
  const auto path = checkpoint / "args.json";
  if (!std::filesystem::exists(path)) {  // ms-swift talks then, too
    v.notes.push_back(str("--load_data_args: no training run wrote ", checkpoint.string(), " (there is no ",
                          path.filename().string(),
                          "), so that no rows were kept and you ask yourself; name a run's checkpoint by --model or "
                          "--adapters, or give --val_dataset"));
    return;
  }
  const Json args = Json::parse(read_file(path, 16 << 20), nullptr, /*allow_exceptions=*/false);
  require(args.is_object(), Fault::Usage, path.string(), " holds no JSON object");
  if (args.contains("val_dataset") && args["val_dataset"].is_array() && !args["val_dataset"].empty()) {
    for (const char* key : {"val_dataset", "columns", "encoding", "disable_auto_column_mapping", "custom_dataset_info",
                            "model_name", "model_author", "use_hf"})
      if (args.contains(key) && !args[key].is_null() && !v.given(key)) v.set(key, args[key]);
    return;
  }
  const auto split = std::filesystem::absolute(checkpoint).lexically_normal().parent_path() / "val_dataset.jsonl";
  require(std::filesystem::exists(split), Fault::Usage, "--load_data_args: the run of ", checkpoint.string(),
          " kept no rows for validation (it had neither --val_dataset nor --split_dataset_ratio); give --val_dataset");
  v.set("val_dataset", Json::array({split.string()}));
}

void check_metric(const InferOptions& o) {
  if (!o.metric || o.metric == "acc" || o.metric == "rouge") return;
  if (is_program(*o.metric)) return check_program(program_command(*o.metric), "--metric");
  // Of rewards those for which an answer's text and its row are enough.
  const std::vector<std::string> names = {"acc",          "rouge",     "accuracy",        "anls", "format", "iou",
                                          "react_format", "toolbench", "external:PROGRAM"};
  require(std::find(names.begin(), names.end(), *o.metric) != names.end(), Fault::Usage, "--metric ", *o.metric,
          " is not possible. Allowed: ", join(names));
}

// Of answers with the rows that asked for them; what the program has no opinion of counts nothing.
RowBook::Judge judge_of(const InferOptions& o) {
  if (!o.metric || *o.metric == "acc" || *o.metric == "rouge") return {};
  RewardOptions asked;
  asked.reward_funcs = {*o.metric};
  return [rewards = std::make_shared<Rewards>(asked)](const std::vector<RowBook::Judged>& answers) {
    std::vector<RewardInput> inputs;
    for (const RowBook::Judged& each : answers)
      inputs.push_back({.completion = each.answer, .tokens = {}, .row = &each.row});
    return rewards->score(inputs).functions.front();
  };
}

// What only a model of this program's own can do.
void check_client(const InferOptions& o) {
  check_metric(o);
  require(!o.interactive(), Fault::Usage, "--infer_backend client answers rows: give them by --val_dataset");
  require(o.adapters.folders.empty(), Fault::Usage,
          "--adapters are the server's business: name one of its models by --model");
  require(o.prompt.response_prefix.empty() && o.prompt.chat_template.empty() && o.prompt.agent_template.empty() &&
              o.prompt.use_chat_template,
          Fault::Usage,
          "with --infer_backend client the server's own chat template is used: no --response_prefix, --chat_template, "
          "--agent_template, --use_chat_template");
  require(!o.prompt.max_length, Fault::Usage,
          "--max_length cannot be kept with --infer_backend client: only the server counts tokens");
  require(!o.answers.stream.value_or(false), Fault::Usage,
          "--stream shows an answer while it is made, which --infer_backend client does not");
  require(!o.answers.top_logprobs || o.answers.logprobs, Fault::Usage, "--top_logprobs needs --logprobs true");
  require(!o.placement.placed(), Fault::Usage, "--device_map and --max_memory are the server's business");
}
}  // namespace

void InferOptions::resolve(OptionTable& v) {
  speech.enabled = !audio_dir.empty();
  require(!speech.enabled || !client(), Fault::Usage,
          "--audio_dir speaks with a model of this machine; a server's answers are asked for as sounds by its own API");
  if (client())
    for (const char* name :
         {"model_type", "torch_dtype", "max_model_len", "device", "max_num_seqs", "max_batched_tokens",
          "memory_utilization", "kv_cache_gb", "enable_prefix_caching", "truncation_strategy"})
      if (v.given(name))
        v.notes.push_back(str("--", name, " has no effect with --infer_backend client: the server computes"));
  task.before_resolve(v);
  adapters.resolve(v, model);
  task.after_resolve(v, model);
  model.HubFlags::resolve();
  mesh.resolve(v);
  prompt.resolve(v);
  if (const std::string stop = AgentTemplate::stop_of(prompt.agent_template); !stop.empty())
    answers.stop_words.push_back(stop);
  if (load_data_args && val_dataset.empty()) {
    take_kept_rows(v, adapters.folders.empty() ? model.model : adapters.folders.front());
    if (val_dataset.empty()) metric.reset();  // there is nothing to compare with
  }
  if (mesh.foreign_tensor && interactive() && !v.given("tensor_model_parallel_size") &&
      mesh.tensor_model_parallel_size > 1) {
    v.notes.push_back(str("--vllm_tensor_parallel_size ", *mesh.foreign_tensor,
                          " has no effect: a chat runs in one process; --device_map auto lays the model over several "
                          "devices"));
    mesh.tensor_model_parallel_size = 1;
  }
  if (infer_backend == "transformers") infer_backend = "pt";
  take_foreign_backend(*this, v);
  if (infer_backend == "engine" && max_batch_size) {
    if (*max_batch_size > 0 && !v.given("max_num_seqs")) engine.spec.max_sequences = *max_batch_size;
    v.notes.push_back("--max_batch_size is the engine's --max_num_seqs; --infer_backend pt answers in fixed batches");
    max_batch_size.reset();
  }
}

void InferOptions::check() const {
  check_encoding(encoding);
  require(client() == !base_url.empty(), Fault::Usage, "--base_url and --infer_backend client belong together");
  if (client()) return check_client(*this);
  model.check();
  engine.drafting.spec();
  quantise.check();
  placement.check(model);
  mesh.check(model, placement, quantise.any());
  require(!mesh.shares_parts() || !interactive(), Fault::Usage,
          "a chat runs in one process: give rows by --val_dataset, or `apus deploy`, which serves a page to chat on");
  require(
      mesh.data_parallel_size == 1 || (!interactive() && gives_words(model) && !placement.placed()), Fault::Usage,
      "--data_parallel_size shares out rows that are answered in words, to copies on a device each: it is not for a "
      "chat, nor with --task_type ",
      model.task_type, " or --device_map");
  require(!use_installed_backend, Fault::Usage,
          "--use_installed_backend true belongs to --infer_backend vllm, sglang or lmdeploy");
  require(!max_batch_size || infer_backend == "pt", Fault::Usage,
          "--max_batch_size is of a model here: the server at --base_url makes its own batches");
  check_metric(*this);
  require(!(interactive() && metric), Fault::Usage, "--metric needs rows to compare with: give --val_dataset");
  require(!answers.top_logprobs || answers.logprobs, Fault::Usage, "--top_logprobs needs --logprobs true");
}

std::vector<QuestionSet> InferOptions::question_sets() const {
  const DatasetInfo known(custom_dataset_info);
  const FetchDataset from_hub = hub_datasets(model.use_hf, model.hub_token.value_or(""));
  std::vector<QuestionSet> sets;
  for (const std::string& name : val_dataset) {
    QuestionSet set;
    set.encoding = encoding;
    set.normalize = {.columns = parse_columns(columns),
                     .auto_mapping = !disable_auto_column_mapping,
                     .seed = static_cast<uint64_t>(common.seed),
                     .names = {model_name, model_author}};
    if (name == "-") {
      set.files = {name};
    } else {
      const auto [ref, renamed] = known.resolve(parse_dataset_ref(name), model.use_hf);
      set.normalize.columns.insert(renamed.begin(), renamed.end());  // --columns wins
      set.count = ref.count;
      for (const auto& file : dataset_files(ref, from_hub)) set.files.push_back(file.string());
    }
    sets.push_back(std::move(set));
  }
  return sets;
}

void take_media(const InferOptions& o, std::vector<QuestionSet>& rows) {
  const bool media = o.client() || open_media_processor(o.model.model, nullptr, o.prompt.media) != nullptr;
  for (QuestionSet& set : rows) set.normalize.media = media;
}

namespace {
// What answers depend on besides their rows. Long texts by their digests.
Json made_by(const InferOptions& o) {
  Json by = Json::object();
  if (o.client()) {
    by["server"] = o.base_url, by["model"] = o.model.model;
  } else {
    by["model"] = checkpoint_digest(o.model.model);
    by["adapters"] = Json::array();
    for (const std::string& adapter : o.adapters.folders) by["adapters"].push_back(checkpoint_digest(adapter));
  }
  static const std::set<std::string> groups = {"Prompt", "Answers"},
                                     others = {"torch_dtype",   "model_type",    "task_type",
                                               "rope_scaling",  "quant_method",  "quant_bits",
                                               "seed",          "max_model_len", "pooling",
                                               "infer_backend", "num_labels",    "reranker_use_activation"},
                                     shown = {"stream"};
  InferOptions copy = o;
  const OptionTable table = OptionTable::of(copy);
  const Json values = table.json();
  for (const auto& option : table.options()) {
    const std::string& name = option->name;
    const bool acts = !std::holds_alternative<std::monostate>(option->target) && values.contains(name);
    if (!acts || shown.count(name) || !(groups.count(option->group) || others.count(name))) continue;
    const Json& value = values[name];
    constexpr size_t kShort = 80;
    by[name] = value.is_string() && value.get_ref<const std::string&>().size() > kShort
                   ? Json("text " + hex_digest(value.get<std::string>(), 8))
                   : value;
  }
  return by;
}
}  // namespace

RowBook::Spec row_book_spec(const InferOptions& o, const std::string& result_path) {
  std::vector<QuestionSet> rows = o.rows.empty() ? o.question_sets() : o.rows;
  take_media(o, rows);
  return {.rows = std::move(rows),
          .sample = o.val_dataset_sample,
          .strict = o.strict,
          .resume = o.resume,
          .write_every = o.write_batch_size,
          .path = result_path,
          .metric = o.metric,
          .judge = judge_of(o),
          .on_answer = o.on_answer,
          .made_by = result_path == "-" ? Json() : made_by(o)};
}

namespace {
// Beside the checkpoint that answers; a model that no run made may be shared or a hub's, and is left alone.
std::filesystem::path result_folder(const InferOptions& o) {
  namespace fs = std::filesystem;
  if (o.client()) return "infer_result";
  if (!o.adapters.folders.empty()) return fs::path(o.adapters.folders.front()) / "infer_result";
  const std::string& folder = o.model.base_folder.empty() ? o.model.model : o.model.base_folder;
  if (fs::exists(fs::path(folder) / "args.json")) return fs::path(folder) / "infer_result";
  const fs::path model = (fs::absolute(folder) / "").lexically_normal().parent_path();
  return fs::path("result") / model.filename() / "infer_result";
}
}  // namespace

std::string default_result_path(const InferOptions& o) {
  return (result_folder(o) / (local_time("%Y%m%d-%H%M%S") + ".jsonl")).string();
}

std::filesystem::path InferOptions::ranks_dir() const {
  // A chat, and what is not words, come from one process.
  if (client() || interactive() || !gives_words(model)) return {};
  const std::filesystem::path named = result_path == "-" ? "" : result_path;
  const auto beside = named.has_parent_path() ? named.parent_path() : named.empty() ? result_folder(*this) : ".";
  return beside / "logs" / local_time("%Y%m%d-%H%M%S");
}

void InferOptions::prepare_plan(OptionTable& v, int64_t devices) {
  mesh.prepare_plan(v, model, placement, quantise.any(), devices);
}

PlanSpec InferOptions::plan_spec(const Json& config, const DeviceFacts& facts, int64_t devices) const {
  PlanSpec spec = inference_spec(model, engine, config, facts);
  hold_quantised(spec, config, quantise);
  mesh.lay_out(spec, devices);
  return spec;
}

void InferOptions::rehearse(Rehearsal& r) const {
  if (client()) return r.questions(rows);  // the model is the server's
  if (speech.alone) {
    r.questions(rows);
    return r.output(audio_dir);
  }
  const Json config = r.model(model.model);
  std::vector<QuestionSet> asked = rows;
  const bool sees = model_facts(config).seeing != nullptr;
  for (QuestionSet& set : asked) set.normalize.media = sees;
  r.questions(asked);
  r.adapters(adapters.folders);
  r.tokenizer(model.model);
  if (prompt.use_chat_template) r.chat_template(prompt.chat_template, model.model);
  if (!interactive()) r.output(result_path.empty() ? result_folder(*this) : std::filesystem::path(result_path));
  if (placement.placed()) return r.placement({model, placement, &engine, adapters.first()});
  r.plan(plan_spec(config, device_facts(model.device)));
}

namespace {
int run(const InferOptions& options) { return options.client() ? infer_client(options) : run_heavy("infer", &options); }
const RegisterCommand<InferOptions> infer_command(
    {.name = "infer",
     .group = "Run",
     .summary = "chat with a model, or answer the rows of a file",
     .examples = {"infer --model DIR",
                  "infer --model DIR --val_dataset rows.jsonl --result_path answers.jsonl --max_new_tokens 256",
                  "infer --infer_backend client --base_url http://127.0.0.1:8000/v1 --val_dataset rows.jsonl",
                  "infer --adapters output/v0-.../checkpoint-100 --load_data_args true"}},
    run);
}  // namespace

}  // namespace apus
