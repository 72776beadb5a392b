// SPDX-License-Identifier: Apache-2.0
#include "cli/export.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "base/sizes.h"
#include "checkpoint/adapted_folder.h"
#include "checkpoint/adapter_config.h"
#include "checkpoint/gguf_settings.h"
#include "cli/command.h"
#include "cli/rehearsal.h"
#include "gguf/imatrix.h"
#include "quant/format.h"

namespace apus {
namespace fs = std::filesystem;

void ExportOptions::fields(OptionTable& v) {
  v.group("Export");
  v("merge_lora", merge_lora, "fold adapters into the model's weights").common();
  v("to_cached_dataset", to_cached_dataset, "encode --dataset once, for the --cached_dataset of many runs").common();
  v("to_gguf", to_gguf, "write one GGUF file with weights in this format: " + join(mix_names()))
      .common()
      .shown_default("no such file");
  v("imatrix", imatrix,
    "--to_gguf: an importance matrix of llama-imatrix (.dat or .gguf), by which numbers that matter more are rounded "
    "better")
      .shown_default("none");
  v("to_ollama", to_ollama, "write a Modelfile for ollama, of the model's folder or of the file of --to_gguf").common();
  v("to_hf", to_hf,
    "write the model anew as HuggingFace's files, in another --torch_dtype or --max_shard_size; with --adapters that "
    "are "
    "not merged the adapter's")
      .common();
  v("adapters", adapters, "folders of adapters, such as checkpoints of training runs")
      .common()
      .alias("lora")
      .alias("ckpt_dir", "its old name");
  v("model", model, "folder of the base, or a hub's id").common().shown_default("what the adapter names");
  v("adapter_weights", adapter_weights, "--merge_lora: a factor for each adapter's changes").shown_default("1 each");
  v("output_dir", output_dir, "folder to write")
      .common()
      .alias("merged_dir")
      .shown_default("<adapter>-merged, <model>-cached_dataset, -gguf, -ollama, -bnb-int4");
  v("torch_dtype", torch_dtype, "number format of the result")
      .common()
      .choices({"float32", "bfloat16", "float16"})
      .shown_default("the base's");
  v("max_shard_size", max_shard_size, "largest weight file: 500MB, 5GB, ...");
  v("exist_ok", exist_ok, "replace what is in the way of the output").common();
  hub.fields(v);
  v.no_effect({"device_map", "max_memory", "device"},
              "tensors are merged one at a time on the processor; no device is filled");
  v.no_effect({"safe_serialization"}, "weights are always written as safetensors");
  v.no_effect({"load_args", "load_data_args", "check_model", "model_type", "tuner_backend", "tuner_type", "attn_impl"},
              "exporting needs files only");
  v("new_special_tokens", new_special_tokens, "tokens that the adapter was trained with, or .txt files of them")
      .shown_default("what the adapter's run was given");
  v("rope_scaling", rope_scaling, "how the model's positions were stretched in training")
      .shown_default("what the adapter's run was given");
  v("max_model_len", max_model_len, "how far --rope_scaling stretched the model's positions")
      .at_least(1)
      .shown_default("what the adapter's run was given");
  v.no_effect({"ddp_timeout", "ddp_backend", "enable_npu_model_patch", "local_repo_path", "experts_impl"},
              "exporting needs files only");
  v.refuse({"init_strategy"}, "the checkpoint is used as it is; change its files instead");
  v.refuse({"use_swift_lora"}, "adapters are in PEFT's format only");
  without_effect<GenerationOptions>(v, "nothing is generated");
  v("task_type", task_type, "--to_cached_dataset: what the rows are encoded for, as apus sft takes it")
      .choices({"causal_lm", "seq_cls", "token_cls", "reranker", "generative_reranker", "embedding"});
  std::vector<std::string> pairs, modes = {"train", "rlhf"};
  const std::string usual = algorithm_info(usual_algorithm("rlhf")).cached_rows;
  for (const std::string& name : algorithms_of("rlhf"))
    if (const std::string& rows = algorithm_info(name).cached_rows; !rows.empty())
      (rows == usual ? pairs : modes).push_back(name);
  v("template_mode", template_mode,
    str("--to_cached_dataset: rlhf: rows are pairs of answers, for --rlhf_type ", join(pairs),
        "; any other: those of the algorithm of that name"))
      .choices(modes);
  v("num_labels", num_labels, "--to_cached_dataset: how many labels the rows have, with --task_type seq_cls, token_cls")
      .at_least(1);
  v("problem_type", problem_type, "--to_cached_dataset: what the column `label` holds, as apus sft takes it")
      .choices({"single_label_classification", "multi_label_classification", "regression"});
  v.refuse({"quant_method", "quant_bits", "hqq_axis", "bnb_4bit_compute_dtype", "bnb_4bit_quant_type",
            "bnb_4bit_use_double_quant", "bnb_4bit_quant_storage"},
           "not available in this form");
  quantise.honour(v);
  std::vector<std::string> methods = quant::exported_methods();
  const std::vector<std::string> with_rows = quant::calibrated_methods();
  v.at("quant_method").help = str("write the model with quantised weights: ", join(methods),
                                  ", or, calibrated with rows of --dataset, ", join(with_rows));
  methods.insert(methods.end(), with_rows.begin(), with_rows.end());
  v.at("quant_method").choices(methods);
  v.at("quant_bits").help = "bits of a weight: " + quant::bits_text(methods);
  v.at("hqq_axis").refused("hqq is no format of an export");
  for (const char* name :
       {"quant_method", "quant_bits", "hqq_axis", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant"})
    v.at(name).restored_kind.clear();
  v("quant_n_samples", quant_n_samples, "rows of --dataset to calibrate with").at_least(1);
  v("quant_batch_size", quant_batch_size, "blocks of --max_length tokens that run together; -1: all").at_least(-1);
  v("group_size", group_size, "weights of a row that share a scale, where rows calibrate; -1: the whole row");
  v("desc_act", desc_act,
    "gptq: round the columns with the largest inputs first; better at 2 and 3 bits, slower kernels");
  v.refuse({"to_mcore", "mcore_model", "mcore_adapter", "thread_count", "offload_bridge", "test_convert_precision",
            "test_convert_dtype"},
           "checkpoints are HuggingFace's: apus megatron export takes these flags, and writes such a folder");
  push.commit_message = "update files";
  push.fields(v);
  data.fields(v);
  training_template_fields(v, prompt, data);
  common.fields(v);
}

void ExportOptions::resolve(OptionTable& v) {
  if (to_cached_dataset)  // rows are encoded as the run will want them
    for (const auto& [name, value] : algorithm_info(rows_for()).defaults.items())
      if (const auto& all = v.options(); !v.given(name) && std::any_of(all.begin(), all.end(), [&name = name](auto& o) {
            return o->name == name && o->refusal.empty();
          }))
        v.set(name, value);
  for (const char* name : {"task_type", "template_mode", "num_labels", "problem_type"})
    if (v.given(name) && !to_cached_dataset)
      v.notes.push_back(str("--", name, " has no effect without --to_cached_dataset: exporting needs files only"));
  prompt.resolve(v);
  hub.resolve();
  max_shard_bytes = parse_bytes(max_shard_size, "--max_shard_size");
  if (quantise.method && !calibrates())
    for (const char* name : {"dataset", "quant_n_samples", "quant_batch_size", "group_size"})
      if (v.given(name))
        v.notes.push_back(str("--", name, " has no effect with --quant_method ", *quantise.method, ": it is for ",
                              join(quant::calibrated_methods()), ", which calibrate with rows"));
  for (std::string& dir : adapters) dir = adapter_meant(dir, v);
  model = model_meant(model, v);
  if (adapters.empty()) {
    if (model.empty()) return;
    const std::string method = quantise.method.value_or("");
    const auto bits = quant::bits_of_method(method);
    const bool one_size = bits.size() == 1 && !calibrates();
    const std::string suffix = to_hf                      ? "-hf"
                               : method.empty()           ? "-cached_dataset"
                               : one_size || bits.empty() ? "-" + method
                                                          : str("-", method, "-int", quantise.bits.value_or(bits[0]));
    const fs::path from = fs::path(model).lexically_normal();
    const bool here = fs::is_directory(from);       // else a hub's: owner/name
    const bool file = from.extension() == ".gguf";  // beside it, without the ending
    const std::string stem =
        file ? (from.parent_path() / from.stem()).string() : (here ? from : from.filename()).string();
    if (output_dir.empty()) output_dir = stem + (!to_gguf.empty() ? "-gguf" : to_ollama ? "-ollama" : suffix);
    return;
  }
  const fs::path first = fs::path(adapters[0]).lexically_normal();
  if (model.empty() && fs::exists(first / "adapter_config.json")) {
    const Json config =
        parse_json(read_file(first / "adapter_config.json", 16 << 20), (first / "adapter_config.json").string());
    if (config.is_object() && config.contains("base_model_name_or_path") &&
        config["base_model_name_or_path"].is_string())
      model = config["base_model_name_or_path"].get<std::string>();
    if (!fs::exists(model) && fs::exists(first / model)) model = (first / model).lexically_normal();
  }
  take_settings_of(first, v);
  std::string name = first.string();
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  if (output_dir.empty())
    output_dir = name + (to_hf && !merge_lora ? "-hf"
                         : to_gguf.empty()    ? to_ollama && !merge_lora ? "-ollama" : "-merged"
                                              : "-gguf");
}

std::string ExportOptions::model_name() const {
  const fs::path from = fs::absolute(adapters.empty() ? named.empty() ? model : named : adapters[0]).lexically_normal();
  const fs::path last = from.has_filename() ? from : from.parent_path();
  return (last.extension() == ".gguf" ? last.stem() : last.filename()).string();
}

fs::path ExportOptions::gguf_path() const {
  if (output_dir.ends_with(".gguf")) return output_dir;
  return fs::path(output_dir) / (model_name() + "-" + find_mix(to_gguf)->label() + ".gguf");
}

// What its run changed about the checkpoint must be changed here too.
void ExportOptions::take_settings_of(const fs::path& adapter, OptionTable& v) {
  const fs::path file = adapter / "args.json";
  if (!fs::exists(file)) return;
  const Json args = Json::parse(read_file(file, 64 << 20), nullptr, /*allow_exceptions=*/false);
  for (const char* name : {"new_special_tokens", "rope_scaling", "max_model_len"})
    if (args.is_object() && args.contains(name) && !args[name].is_null() && !v.given(name)) v.set(name, args[name]);
}

void ExportOptions::fetch() {
  named = model;
  model = hub.fetched_model(model);
  if (rope_scaling.empty() && new_special_tokens.empty()) return;
  model = adapted_folder(model, {rope_scaling, max_model_len, listed_tokens(new_special_tokens)}).string();
}

bool ExportOptions::only_pushes() const {
  return push.push_to_hub && !merge_lora && !to_cached_dataset && !quantise.any() && !converts() && !to_hf;
}

fs::path ExportOptions::pushed() const {
  if (only_pushes()) return adapters.empty() ? model : adapters[0];
  return !to_gguf.empty() && !to_ollama && output_dir.ends_with(".gguf") ? gguf_path() : fs::path(output_dir);
}

std::string ExportOptions::rows_for() const {
  if (template_mode != "train") return template_mode == "rlhf" ? usual_algorithm("rlhf") : template_mode;
  return task_type == "causal_lm" ? "sft" : task_type;
}

CachedRows ExportOptions::cached_rows() const {
  CachedRows rows = {rows_for(), algorithm_info(rows_for()).options()};
  OptionTable own;
  rows.own.fields(own);
  if (num_labels) own.set("num_labels", *num_labels);
  if (problem_type) own.set("problem_type", *problem_type);
  const fs::path config = fs::path(model) / "config.json";
  if (rows.own.asks_checkpoint())
    rows.own.take_from(parse_json(read_file(config, 16 << 20), config.string(), Fault::Model), model);
  return rows;
}

void ExportOptions::check_cached() const {
  require(task_type == "causal_lm" || template_mode == "train", Fault::Usage, "--task_type ", task_type,
          " and --template_mode ", template_mode, ": one of the two says what the rows are encoded for");
  require(!algorithm_info(rows_for()).cached_rows.empty(), Fault::Usage, "--task_type ", task_type,
          ": what becomes of its rows depends on the run's settings; give the run the rows themselves (--dataset)");
  require((!num_labels && !problem_type) || algorithm_info(rows_for()).options().has_labels(), Fault::Usage,
          "--num_labels and --problem_type are of --task_type seq_cls and token_cls");
}

void ExportOptions::check() const {
  push.check();
  if (only_pushes()) {
    require(adapters.size() <= 1, Fault::Usage, "--push_to_hub true uploads one adapter: give one of --adapters");
    require(fs::is_directory(pushed()), Fault::Usage,
            "--push_to_hub true uploads the folder of --adapters or --model, ", "and ",
            pushed().empty() ? "neither is given" : pushed().string() + " is none here");
    return;
  }
  require(!push.push_to_hub || !to_cached_dataset, Fault::Usage,
          "--push_to_hub true uploads models: apus upload --repo_type dataset sends rows");
  require(
      merge_lora || to_cached_dataset || quantise.any() || converts() || to_hf, Fault::Usage,
      "what shall be exported? --merge_lora true folds --adapters into the model; --quant_method quantises --model; "
      "--to_gguf q4_k_m writes one file for llama.cpp and ollama; --to_ollama true a Modelfile; --to_cached_dataset "
      "true encodes --dataset; --to_hf true writes the model anew; --push_to_hub true uploads --model or --adapters");
  if (to_cached_dataset) check_cached();
  require(!to_cached_dataset || (!merge_lora && !converts()), Fault::Usage,
          "--to_cached_dataset and another export: one at a time");
  require(!quantise.any() || (!merge_lora && !to_cached_dataset && !converts()), Fault::Usage,
          "--quant_method and another export, one at a time: a model is merged before it is quantised, and --to_gguf "
          "has its own formats");
  require(!to_hf || (!to_cached_dataset && !quantise.any() && !converts()), Fault::Usage,
          "--to_hf and another export: one at a time");
  require(to_gguf.empty() || find_mix(to_gguf), Fault::Usage, "--to_gguf ", to_gguf,
          " is not possible. Allowed: ", join(mix_names()), ", in capitals or not");
  require(imatrix.empty() || !to_gguf.empty(), Fault::Usage, "--imatrix ", imatrix,
          " is for --to_gguf, which is not given");
  require(imatrix.empty() || find_mix(to_gguf)->weighs_importance(), Fault::Usage, "--imatrix ", imatrix,
          " changes nothing with --to_gguf ", to_gguf,
          ": q6_k, q5_k_m, q5_k_s, q4_k_m, q4_k_s, iq4_nl and iq4_xs ask "
          "for importance");
  require(imatrix.empty() || fs::is_regular_file(imatrix), Fault::Usage, "--imatrix ", imatrix, " is no file");
  require(!converts() || adapters.empty() || merge_lora, Fault::Usage,
          "--adapters with --to_gguf or --to_ollama: give --merge_lora true, which folds them into the model first");
  if (merge_lora) return check_merge();
  if (quantise.any()) return check_quantise();
  if (to_hf) return check_anew();
  if (converts()) {
    require(HubFlags::is_model(model), Fault::Usage,
            "--model is needed: the checkpoint that is written in another form");
    return check_output();
  }
  require(HubFlags::is_model(model), Fault::Usage,
          "--model is needed: the checkpoint whose tokenizer and chat template the rows are encoded with");
  require(!data.dataset.empty(), Fault::Usage, "--dataset is needed: files, folders or hub ids of the rows to encode");
  require(!data.streaming, Fault::Usage, "--streaming true: a cached dataset is written as a whole");
  data.check();
  check_output();
}

void ExportOptions::check_output() const {
  // Into a folder of GGUF files one more may go.
  const fs::path target = !to_gguf.empty() && !to_ollama ? gguf_path() : fs::path(output_dir);
  require(exist_ok || !fs::exists(target), Fault::Usage, target == output_dir ? "--output_dir " : "", target.string(),
          " is there already; choose another --output_dir, or give --exist_ok true to replace it");
  require(!output_dir.ends_with(".gguf") || (!to_gguf.empty() && !to_ollama), Fault::Usage, "--output_dir ", output_dir,
          ": a folder is needed, only --to_gguf alone writes one file");
}

void ExportOptions::check_merge() const {
  require(!adapters.empty(), Fault::Usage,
          "--adapters is needed: the folder of an adapter (a checkpoint of a LoRA run)");
  for (const std::string& dir : adapters)
    require(is_adapter_dir(dir), Fault::Usage, "--adapters ", dir, " is no adapter: it holds no adapter_config.json",
            fs::exists(fs::path(dir) / "config.json") ? ". It is a whole model: give it with --model" : "");
  require(HubFlags::is_model(model), Fault::Usage, "the base model '", model,
          "' is not a folder here; give it with --model");
  require(adapter_weights.empty() || adapter_weights.size() == adapters.size(), Fault::Usage,
          "--adapter_weights needs one number for each of the ", adapters.size(), " adapters");
  check_output();
  require(!fs::exists(output_dir) || !fs::exists(model) || !fs::equivalent(output_dir, model), Fault::Usage,
          "--output_dir ", output_dir, " is the base itself");
}

void ExportOptions::check_anew() const {
  require(adapters.size() <= 1, Fault::Usage, "--to_hf true writes one adapter anew: give one of --adapters");
  if (adapters.empty())
    require(HubFlags::is_model(model), Fault::Usage, "--model is needed: the checkpoint that is written anew");
  else
    require(is_adapter_dir(adapters[0]), Fault::Usage, "--adapters ", adapters[0],
            " is no adapter: it holds no adapter_config.json");
  check_output();
}

bool ExportOptions::calibrates() const { return quantise.method && quant::calibrated_making(*quantise.method); }

void ExportOptions::check_calibration() const {
  const std::string& method = *quantise.method;
  quantise.check();
  require(group_size == -1 || (group_size >= 8 && group_size % 8 == 0), Fault::Usage, "--group_size ", group_size,
          " is not possible: -1, or a multiple of 8");
  require(quant_batch_size != 0, Fault::Usage, "--quant_batch_size 0: give a number of blocks, or -1 for all of them");
  require(!desc_act || quant::calibrated_making(method)->by_importance, Fault::Usage,
          "--desc_act is not possible with --quant_method ", method, ", which rounds all columns at once");
  require(!data.dataset.empty(), Fault::Usage, "--quant_method ", method,
          " needs --dataset: rows like those that the model will answer, to calibrate with");
  require(!data.streaming, Fault::Usage, "--streaming true: rows for calibration are read as a whole");
  data.check();
}

void ExportOptions::check_quantise() const {
  if (calibrates())
    check_calibration();
  else
    require(!desc_act, Fault::Usage, "--desc_act is for --quant_method ", join(quant::calibrated_methods())),
        quantise.check();
  require(HubFlags::is_model(model), Fault::Usage, "--model is needed: the checkpoint to quantise");
  require(adapters.empty(), Fault::Usage, "--adapters: merge them first (--merge_lora true), then quantise the result");
  require(!torch_dtype, Fault::Usage, "--torch_dtype: what is not quantised keeps its format");
  require(exist_ok || !fs::exists(output_dir), Fault::Usage, "--output_dir ", output_dir,
          " is there already; choose another, or give --exist_ok true to replace it");
}

void ExportOptions::rehearse(Rehearsal& r) const {
  push.rehearse(r, hub);
  if (only_pushes()) return;
  if (to_cached_dataset) {
    r.tokenizer(model);
    if (prompt.use_chat_template) r.chat_template(prompt.chat_template, model);
    return r.output(output_dir);
  }
  const Json config = r.model(model);
  const ModelFacts facts = model_facts(config);
  if (quantise.any()) {
    if (calibrates()) {
      r.tokenizer(model);
      if (prompt.use_chat_template) r.chat_template(prompt.chat_template, model);
    }
    r.output(output_dir, facts.parameters() * 2);
    return r.right("memory", calibrates() ? "one layer at a time" : "one tensor at a time");
  }
  r.adapters(adapters);
  if (to_hf && !merge_lora && !adapters.empty()) return r.output(output_dir);
  if (!to_gguf.empty()) {
    const GgufMix& mix = *find_mix(to_gguf);
    if (config.contains("quantization_config"))  // its tensors have other names once they are plain
      family_of_model_type(facts.type, model);
    else
      gguf_settings(model, mix, model_name());
    if (!imatrix.empty()) r.right("imatrix", str(ImportanceMatrix::read(imatrix).size(), " matrices in ", imatrix));
    r.right("gguf", str(mix.label(), ", ", gguf_path().string()));
  }
  if (converts()) {
    r.tokenizer(model);
    return r.output(output_dir, to_gguf.empty() ? 0
                                                : facts.parameters() * ggml_form(find_mix(to_gguf)->base).bytes /
                                                      ggml_form(find_mix(to_gguf)->base).block);
  }
  const std::string dtype = torch_dtype.value_or(facts.dtype);
  r.output(output_dir, facts.parameters() * (dtype == "float32" ? 4 : 2));
  r.right("memory", "one tensor at a time");
}

namespace {
int run_export(const ExportOptions& options) { return run_heavy("export", &options); }
ExportOptions merging() {
  ExportOptions options;
  options.merge_lora = true;
  return options;
}
const RegisterCommand<ExportOptions> export_command(
    {.name = "export",
     .group = "Model",
     .summary = "merge adapters, quantise, write GGUF files or Modelfiles, encode a dataset once for many runs",
     .examples = {"export --adapters out/v0-.../checkpoint-500 --merge_lora true",
                  "export --model DIR --quant_method bnb --quant_bits 4 --output_dir DIR-bnb",
                  "export --model DIR --quant_method gptq --quant_bits 4 --dataset rows.jsonl",
                  "export --model DIR --to_gguf q4_k_m",
                  "export --to_cached_dataset true --model DIR --dataset rows.jsonl --output_dir cache"}},
    run_export);
const RegisterCommand<ExportOptions> merge(
    {.name = "merge-lora",
     .group = "Model",
     .summary = "fold LoRA adapters into a model's weights",
     .examples = {"merge-lora --adapters out/v0-.../checkpoint-500 --output_dir merged",
                  "merge-lora --model DIR --adapters A B --adapter_weights 0.7 0.3"}},
    run_export, merging());
}  // namespace

}  // namespace apus
