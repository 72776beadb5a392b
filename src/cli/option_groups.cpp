// SPDX-License-Identifier: Apache-2.0
#include "cli/option_groups.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/nearby.h"
#include "base/nearest.h"
#include "checkpoint/adapted_folder.h"
#include "checkpoint/adapter_config.h"
#include "checkpoint/gguf_folder.h"
#include "checkpoint/run_folder.h"
#include "doctor/device_words.h"
#include "hub/gguf_choice.h"
#include "hub/hub.h"
#include "parallel/placement/device_map.h"
#include "text/builtin_templates.h"

namespace apus {

namespace {
constexpr int64_t kMaxText = 16 << 20;

std::string text_of_file(const std::string& path) { return read_file(path, kMaxText); }

bool is_file(const std::string& path) {
  std::error_code code;
  return path.size() < 4096 && std::filesystem::is_regular_file(path, code);
}
}  // namespace

void HubFlags::fields(OptionTable& v) {
  v("use_hf", use_hf, "hub ids mean HuggingFace rather than ModelScope; USE_HF=1 does the same")
      .common()
      .restored("model");
  v("hub_token", hub_token, "access token of the hub, for private repositories").shown_default("the environment's");
  v("model_revision", model_revision, "branch, tag or commit of a hub's model")
      .shown_default("the main branch")
      .restored("model");
}

void HubFlags::resolve() {
  const char* const wish = std::getenv("USE_HF");
  const std::string value = wish ? wish : "";
  if (value == "1" || value == "true" || value == "True" || value == "TRUE") use_hf = true;
}

bool HubFlags::is_model(const std::string& text) {
  std::error_code code;
  return std::filesystem::is_directory(text, code) || gguf_meant(text) ||
         (is_repo_id(gguf_wish(text).repo) && !std::filesystem::exists(text, code));
}

std::string HubFlags::fetched_model(const std::string& model, bool weights, const std::string& flag) const {
  HubOptions hub = HubOptions::from_environment(use_hf ? HubKind::HuggingFace : HubKind::ModelScope);
  if (hub_token) hub.token = *hub_token;
  hub.revision = model_revision.value_or("");
  if (const auto file = gguf_meant(model)) return gguf_folder(*file).string();
  if (!weights) hub.leave = unread_weights(), hub.leave.push_back("*.safetensors");
  const std::filesystem::path folder = model_folder(model, hub, flag);
  const bool of_hub = folder != std::filesystem::path(model);
  if (const auto file = of_hub ? gguf_of_hub(folder, gguf_wish(model).type) : ""; !file.empty())
    return gguf_folder(file).string();
  return folder.string();
}

void ModelOptions::fields(OptionTable& v) {
  v.group("Model");
  v("model", model,
    "folder of the checkpoint (config.json, *.safetensors, tokenizer), a .gguf file, or a hub's id: owner/name, "
    "of GGUF files owner/name:Q4_K_M")
      .common()
      .alias("ckpt_dir", "its old name")
      .alias("model_id_or_path", "its old name")
      .restored("model");
  v("model_type", model_type, "architecture, when config.json does not say it")
      .shown_default("from config.json")
      .restored("model");
  v("torch_dtype", torch_dtype, "number format of the weights and of the arithmetic")
      .choices({"float32", "bfloat16", "float16"})
      .shown_default("from config.json")
      .restored("model");
  v("max_model_len", max_model_len, "longest context in tokens")
      .common()
      .at_least(1)
      .alias("vllm_max_model_len")
      .alias("sglang_context_length")
      .alias("lmdeploy_session_len")
      .shown_default("from config.json")
      .restored("model");
  v("device", device,
    str("where to run: auto, ", join(device_words()), ", or one of several: ", device_words().front(),
        ":1. auto takes them in this order"))
      .common();
  v.no_effect({"attn_impl"}, "attention is always the fused kind over packed tokens");
  v.no_effect({"enable_npu_model_patch"}, "fused operators are chosen by the device, there is nothing to patch");
  v.no_effect({"local_repo_path", "check_model"}, "no model needs foreign code, and nothing is compared with a hub");
  v("task_type", task_type, "this command knows causal language models only").choices({"causal_lm"});
  HubFlags::fields(v);
  v.no_effect({"experts_impl"}, "the experts of a layer are always computed together, by one grouped product");
  v("new_special_tokens", new_special_tokens,
    "tokens that the tokenizer learns to know, or .txt files with one in a line; the embedding grows where it must")
      .restored("model");
  v("rope_scaling", rope_scaling,
    "stretch the positions to --max_model_len: linear, dynamic, yarn, or a JSON object as config.json has it")
      .restored("model");
  v.refuse({"init_strategy"}, "the checkpoint is used as it is; change its files instead");
  const char* const whole = "weights are held in --torch_dtype; bfloat16 is the smallest";
  v.refuse({"quant_method", "quant_bits", "hqq_axis", "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage"}, whole);
  v.no_effect({"bnb_4bit_quant_type", "bnb_4bit_use_double_quant"}, whole);
}

void ModelOptions::fetch() {
  base_folder = model;
  model = fetched_model(model);
  if (!gguf_meant(base_folder)) base_folder = model;
  if (rope_scaling.empty() && new_special_tokens.empty()) return;
  model = adapted_folder(model, {rope_scaling, max_model_len, listed_tokens(new_special_tokens)}).string();
}

void ModelOptions::check() const {
  require(!model.empty(), Fault::Usage, "--model is needed: the folder of a checkpoint, or a hub's id");
  require(
      is_model(model), Fault::Usage, "--model ", model, " is not a folder here",
      is_file(model) ? "; give the folder that holds the file" : ", and no hub id (owner/name) either" + nearby(model));
  require(!is_adapter_dir(model) || std::filesystem::exists(std::filesystem::path(model) / "config.json"), Fault::Usage,
          "--model ", model, " is an adapter: give it with --adapters, and the model it belongs to with --model");
}

void PlacementOptions::fields(OptionTable& v) {
  v("device_map", device_map,
    "a model over several devices. auto: as few as have room for weights and cache; balanced: all, filled alike; "
    "sequential: one after the other; "
    "balanced_low_0: the first holds what the others cannot; or a JSON object, or the file of one: "
    "{\"model.embed_tokens\": 0, \"model.layers\": 1, \"\": \"cpu\"}")
      .common()
      .shown_default("all on --device");
  v("max_memory", max_memory,
    "what weights and cache may take, by device: {0: \"20GB\", 1: \"40GB\"}; others are not used. \"cpu\" takes what "
    "is left over")
      .shown_default("--memory_utilization of each device");
}

void PlacementOptions::check(const ModelOptions& model) const {
  parse_device_map(device_map);
  parse_max_memory(max_memory);
  require(!placed() || model.device.find(':') == std::string::npos, Fault::Usage, "--device ", model.device,
          " names one device, and --device_map or --max_memory choose among all of a kind; give --device ",
          model.device.substr(0, model.device.find(':')));
}

bool fits_here(const Json& args, const std::string& name, OptionTable& v) {
  if (name == "model_type") return args.contains("apus_version");
  if (name != "template" && name != "chat_template") return true;
  if (v.given("template") || v.given("chat_template")) return false;
  const std::vector<std::string> known = builtin_template_names();
  const std::string value = args.contains("template") && args["template"].is_string() ? args["template"] : "";
  const bool ours = std::find(known.begin(), known.end(), value) != known.end();
  if (name == "chat_template") return !ours;
  if (ours || value.empty()) return ours;
  v.notes.push_back(
      str("args.json: --template ", value, " is no template of this program; the checkpoint's own is used"));
  return false;
}

void AdapterOptions::fields(OptionTable& v) {
  v("adapters", folders, "folder of a LoRA adapter (PEFT), such as a checkpoint of a training run")
      .common()
      .alias("lora", "its name in some scripts");
  v("load_args", load_args, "what is not given here is taken from the args.json of the training run");
}

std::string adapter_meant(const std::string& dir, OptionTable& v) {
  std::error_code code;
  const std::filesystem::path folder(dir);
  if (is_adapter_dir(folder)) return dir;
  const bool here = std::filesystem::is_directory(folder, code),
             whole = std::filesystem::exists(folder / "config.json");
  const auto newest = here && !whole ? newest_checkpoint(folder) : std::filesystem::path();
  if (!newest.empty() && is_adapter_dir(newest)) {
    v.notes.push_back(str("--adapters ", dir, " holds runs: its newest checkpoint is taken, ", newest.string()));
    return newest.string();
  }
  fail(Fault::Usage, "--adapters ", dir,
       !here ? " is not a folder here" + nearby(folder) : " is no adapter: it holds no adapter_config.json",
       whole            ? ". It is a whole model: give it with --model"
       : newest.empty() ? ""
                        : ". Its newest checkpoint is a whole model: --model " + newest.string());
}

std::string model_meant(const std::string& model, OptionTable& v) {
  std::error_code code;
  const std::filesystem::path folder(model);
  if (!std::filesystem::is_directory(folder, code) || std::filesystem::exists(folder / "config.json", code) ||
      is_adapter_dir(folder) || gguf_meant(model))
    return model;
  const auto newest = newest_checkpoint(folder);
  if (newest.empty()) return model;
  require(std::filesystem::exists(newest / "config.json", code), Fault::Usage, "--model ", model,
          " holds runs, and its newest checkpoint is an adapter: give --adapters ", newest.string(),
          ", which names its model");
  v.notes.push_back(str("--model ", model, " holds runs: its newest checkpoint is taken, ", newest.string()));
  return newest.string();
}

void AdapterOptions::resolve(OptionTable& v, ModelOptions& model) {
  require(folders.size() <= 1, Fault::Usage,
          "--adapters: one adapter at a time here; `apus export --merge_lora true` folds several into one model");
  for (std::string& dir : folders) {
    if (const size_t equals = dir.find('='); equals != std::string::npos && !std::filesystem::exists(dir))
      dir = dir.substr(equals + 1);  // name=folder
    dir = adapter_meant(dir, v);
  }
  take_settings(v, model);
}

void AdapterOptions::take_settings(OptionTable& v, ModelOptions& model) {
  model.model = model_meant(model.model, v);
  const std::filesystem::path made_by =
      std::filesystem::path(folders.empty() ? model.model : folders.front()) / "args.json";
  if (load_args && !made_by.parent_path().empty() && is_file(made_by.string())) {
    const Json args = Json::parse(text_of_file(made_by.string()), nullptr, /*allow_exceptions=*/false);
    require(args.is_object(), Fault::Usage, made_by.string(),
            " holds no JSON object; --load_args false does without it");
    for (const Option* option : v.with(&Option::restored_kind, "model")) {
      const std::string& name = option->name;
      const bool of_base = name == "model" || name == "torch_dtype" || name == "use_hf" || name == "model_revision";
      if (args.contains(name) && !args[name].is_null() && !v.given(name) && !(of_base && folders.empty()) &&
          fits_here(args, name, v))
        v.set(name, args[name]);
    }
  }
  if (model.model.empty() && !folders.empty()) model.model = read_adapter_config(folders.front()).base_model;
}

void RunOptions::fields(OptionTable& v) {
  v.group("General");
  v("seed", seed, "seed of everything random").common();
  v("dry_run", dry_run,
    "check everything that can be checked beforehand, say what will be needed, and stop: nothing is loaded or written")
      .common();
  v("ignore_args_error", ignore_args_error, "unknown options are warnings instead of errors").forgives_unknown();
  const auto& known = v.options();
  if (std::none_of(known.begin(), known.end(), [](const auto& option) { return option->name == "external_plugins"; }))
    v.refuse({"external_plugins", "custom_register_path"},
             "plugins bring rewards, environments and schedulers to the algorithms of apus rlhf that draw answers, and "
             "to apus rollout");
  v.no_effect(
      {"use_ray", "ray_exp_name", "device_groups"},
      "the program starts its processes itself, one a device (NPROC_PER_NODE), and all of them take every role");
}

void TemplateOptions::fields(OptionTable& v) {
  v.group("Prompt");
  ChatSpec::fields(v);
  v("template", builtin,
    str("one of the program's own chat templates in place of the checkpoint's: ", join(builtin_template_names()),
        "; any other: --chat_template FILE.jinja"))
      .shown_default("the checkpoint's")
      .restored("model");
  v.no_effect({"template_backend"}, "templates are always the checkpoint's Jinja");
  v.no_effect({"padding_side", "padding_free"}, "tokens are packed, there is no padding");
  v.include(media);
  v.refuse({"preserve_thinking"},
           "old thoughts are kept or dropped by the chat template; pass what it asks for in --chat_template_kwargs");
  v.refuse({"sequence_parallel_size"}, "one device holds the sequence; chunked prefill keeps long prompts small", "1");
}

void TemplateOptions::resolve(OptionTable&) {
  media.check();
  chat_template = chosen_template(builtin, chat_template);
  if (!system) return;
  if (system->ends_with(".txt") && is_file(*system)) system = text_of_file(*system);
  for (size_t at = 0; (at = system->find("\\n", at)) != std::string::npos; ++at) system->replace(at, 2, "\n");
}

void text_alone(OptionTable& v) {
  for (const char* name : {"max_pixels", "model_kwargs"}) v.at(name).refused("this command gives models text alone");
}

void GenerationOptions::fields(OptionTable& v) {
  v.group("Answers");
  v("max_new_tokens", max_new_tokens, "longest answer in tokens")
      .common()
      .at_least(1)
      .alias("max_tokens")
      .shown_default("what the context leaves");
  each_sampling_field([&](const auto& field) {
    v(field.name, this->*field.wish, field.help)
        .at_least(static_cast<double>(field.least))
        .at_most(static_cast<double>(field.most))
        .shown_default(field.of_checkpoints ? "from generation_config.json" : str(Sampling().*field.value));
  });
  for (const char* name : {"temperature", "top_p"}) v.at(name).common();
  v("stop_words", stop_words, "texts that end an answer");
  v("stream", stream, "show the answer while it is made").shown_default("true in a chat, false for rows");
  v("logprobs", logprobs, "keep the log-probability of every token of the answer");
  v("top_logprobs", top_logprobs, "--logprobs: keep those of the n likeliest alternatives too")
      .at_least(0)
      .at_most(100);
  v("num_beams", num_beams, "only 1: there is no beam search").at_least(1).at_most(1);
  v.refuse({"structured_outputs_regex"}, "answers are not constrained by this command");
}

void EngineOptions::fields(OptionTable& v) {
  v.group("Engine");
  v.include(spec);
  v("kv_cache_gb", kv_cache_gb, "memory of the key-value cache in GiB")
      .above(0)
      .shown_default("from --memory_utilization");
  v.no_effect({"vllm_enforce_eager", "vllm_disable_custom_all_reduce", "vllm_disable_cascade_attn",
               "vllm_use_async_engine", "sglang_disable_cuda_graph", "sglang_disable_custom_all_reduce",
               "vllm_mm_processor_cache_gb", "vllm_limit_mm_per_prompt", "lmdeploy_vision_batch_size"},
              "Apus's own engine generates");
  v.refuse({"vllm_tensor_parallel_size", "vllm_pipeline_parallel_size", "vllm_data_parallel_size",
            "vllm_enable_expert_parallel", "sglang_tp_size", "sglang_pp_size", "sglang_dp_size", "sglang_ep_size",
            "sglang_enable_ep_moe", "sglang_enable_dp_attention", "lmdeploy_tp"},
           "one device generates: choose it with --device", "1");
  v("quant_compute", quant_compute,
    "products with quantised weights on a processor: int8 rounds what they are multiplied with to eight bits, as other "
    "programs do, and is several times as fast; exact does not, as in training and scores")
      .choices({"int8", "exact"});
  v.include(drafting);
  v.refuse({"lmdeploy_quant_policy"}, "give --kv_cache_dtype int8 for 8; less than eight bits are not possible", "0");
  v.refuse({"vllm_quantization", "sglang_quantization"},
           "a checkpoint's own codes are used as they are; --quant_method bnb makes codes of plain weights", "auto");
  v.refuse({"lmdeploy_cache_max_entry_count"}, "--kv_cache_gb or --memory_utilization sets the cache's size");
}

void untrained_fields(OptionTable& v) {
  v.no_effect({"tuner_backend", "tuner_type", "packing", "packing_length", "packing_num_proc", "packing_strategy",
               "lazy_tokenize", "loss_scale", "is_binary_loss_scale", "add_non_thinking_prefix",
               "disable_ignore_empty_think", "ddp_timeout", "ddp_backend"},
              "nothing is trained here");
  v.no_effect({"merge_lora"}, "an adapter's factors are used as they are; apus merge-lora writes a merged model");
  v.no_effect({"safe_serialization", "max_shard_size"}, "no model is written here");
  v.no_effect({"num_labels", "problem_type"}, "config.json says it, or the adapter");
  v.refuse({"use_swift_lora"}, "adapters are in PEFT's format only");
}

void encoding_field(OptionTable& v, std::string& encoding) {
  v("encoding", encoding,
    "how .jsonl, .json, .csv and .txt files are written, where not in UTF-8: latin-1, gbk, utf-16")
      .shown_default("utf-8")
      .restored("data");
}

void plain_rows_fields(OptionTable& v) {
  v.no_effect({"dataset_num_proc", "load_from_cache_file", "streaming", "shuffle_buffer_size", "remove_unused_columns",
               "download_mode", "data_seed", "dataset_shuffle", "val_dataset_shuffle", "stopping_strategy"},
              "rows are read one after the other, in the file's order, as they are needed");
  v.refuse({"cached_dataset", "cached_val_dataset", "split_dataset_ratio", "interleave_prob", "columns",
            "disable_auto_column_mapping", "model_name", "model_author", "custom_dataset_info"},
           "rows are taken as they stand; prepare the file before");
}

}  // namespace apus
