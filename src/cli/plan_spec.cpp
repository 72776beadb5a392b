// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_spec.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "checkpoint/adapter_config.h"
#include "checkpoint/gguf_folder.h"
#include "gguf/model.h"
#include "models/spec/cutting.h"
#include "models/spec/presets.h"
#include "quant/size.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kRowTokens = 2048;  // assumed when nothing says how long rows are

double element_of(const std::optional<std::string>& wanted, const ModelFacts& model, const DeviceFacts& device,
                  PlanSpec& spec) {
  const std::string dtype = wanted.value_or(model.dtype.empty() ? "float32" : model.dtype);
  if (dtype == "float16" && device.host) spec.assumptions.push_back("float16 is held as bfloat16 on a processor");
  return dtype == "float32" ? 4 : 2;
}

TuningSpec tuning_of(const TunerOptions& o) {
  TuningSpec t;
  t.lora = o.lora(), t.dropout = o.lora_dropout, t.dora = o.use_dora;
  LoraConfig config{.r = o.lora_rank};
  if (o.lora()) o.kinds.describe(o.tuner_type, config);
  t.kind = config.kind, t.boft = config.boft, t.fourier = config.fourier, t.prompt = config.prompt, t.rank = config.r;
  t.adapter_bytes = o.lora_dtype.value_or("float32") == "float32" ? 4 : 2;
  t.target_modules = o.target_modules, t.target_parameters = o.target_parameters, t.modules_to_save = o.modules_to_save,
  t.target_regex = o.target_regex.value_or("");
  t.token_rows =
      listed_token_rows(o.trainable_token_indices, [](const std::string&) { return 0; });  // their number counts
  t.groups = {.llm = o.freeze_llm, .vit = o.freeze_vit, .aligner = o.freeze_aligner};
  t.freeze_ratio = o.freeze_parameters_ratio, t.freeze = o.freeze_parameters, t.train = o.trainable_parameters;
  t.freeze_regex = o.freeze_parameters_regex, t.train_regex = o.trainable_parameters_regex;
  return t;
}

RecomputeFacts recompute_of(const OptimisationOptions& o, const ModelFacts& model) {
  const auto again = o.recompute(model.layers);
  return {.layers = again.layers,
          .selective = again.selective,
          .attention = again.attention,
          .feed_forward = again.feed_forward};
}

void row_tokens(const TemplateOptions& prompt, const DataOptions& data, PlanSpec& spec) {
  spec.packed = data.packing;
  const auto length = data.packing && data.packing_length ? data.packing_length : prompt.max_length;
  spec.row_tokens = length.value_or(data.packing ? spec.model.positions : std::min(kRowTokens, spec.model.positions));
  if (!length && !data.packing)
    spec.assumptions.push_back(str("the longest row has ", spec.row_tokens, " tokens; --max_length says otherwise"));
}

}  // namespace

namespace {
constexpr int64_t kOfMachine = 8;  // devices, where nothing says it

int shard_group(int64_t wanted, int64_t devices, PlanSpec& spec) {
  if (wanted == 0) spec.assumptions.push_back(str("a machine has ", std::min(kOfMachine, devices), " devices"));
  return static_cast<int>(std::min(wanted > 0 ? wanted : kOfMachine, devices));
}
}  // namespace

PlanSpec training_spec(const TrainingFlags& flags, const Json& config, const DeviceFacts& device, int64_t devices) {
  const OptimisationOptions& o = flags.optimisation;
  const ShardingOptions& mesh = flags.mesh;
  PlanSpec spec;
  spec.title = flags.model.model, spec.device = device;
  if (!device.assumed.empty()) spec.assumptions.push_back(device.assumed);
  spec.model = model_facts(config), spec.tuning = tuning_of(flags.tuner);
  if (flags.tuner.grows()) {
    const BlockExpansion grown = grown_blocks(flags.tuner, spec.model);
    spec.model = model_facts(grown.config(config));
    spec.tuning.freeze_ratio = 1, spec.tuning.train = grown.added_names(spec.model.layer);
  }
  spec.train.element = element_of(flags.model.torch_dtype, spec.model, device, spec);
  spec.train.devices = static_cast<int>(devices);
  if (devices > 1) {
    const Sharding& sharding = mesh.sharding();
    spec.train.zero = sharding.stage, spec.train.on_host = sharding.on_host;
    spec.train.release_after_forward = sharding.release_after_forward;
    if (sharding.group) spec.train.shard_devices = shard_group(*sharding.group, devices, spec);
  }
  spec.train.recompute = recompute_of(o, spec.model), spec.train.towers_again = o.towers_again();
  spec.train.optimizer.kind = o.chosen_optimizer();
  spec.train.optimizer.master = spec.master_by_choice = o.master_weights == "float32";
  spec.train.update_in_backward = flags.loop.update_in_backward;
  spec.train.wide_gradients = mesh.sharding().wide_sums;
  spec.train.optimizer.arguments = o.optimizer_arguments();
  const OptimizerArguments& arguments = spec.train.optimizer.arguments;
  spec.train.optimizer.momentum = arguments.count("momentum") + arguments.count("beta1") > 0;
  spec.tuning.trained_layers = o.lisa_activated_layers;
  spec.rows = flags.loop.per_device_train_batch_size;
  row_tokens(flags.prompt, flags.data, spec);
  spec.train.row_sharers = mesh.sequence_parallel_size;
  spec.train.row_groups =
      token_sharers(spec.model.sharing, mesh.sequence_parallel_size, mesh.tensor_model_parallel_size).groups;
  spec.train.residual_sharers = mesh.sequence_parallel ? mesh.tensor_model_parallel_size : 1;
  spec.share = {.tensor = mesh.tensor_model_parallel_size, .experts = mesh.expert_model_parallel_size, .stages = {}};
  if (const auto stages = static_cast<size_t>(mesh.pipeline_model_parallel_size); stages > 1) {
    const std::vector<Range> pieces = stage_layers(spec.model.layers, mesh.stages(), spec.model.seen_layers);
    spec.share.stages.resize(stages), spec.share.pieces = std::ssize(pieces) / mesh.pipeline_model_parallel_size;
    for (size_t i = 0; i < pieces.size(); ++i) spec.share.stages[i % stages] += pieces[i].size;
  }
  spec.count_tokens();
  return spec;
}

PlanSpec inference_spec(const ModelOptions& m, const EngineOptions& e, const Json& config, const DeviceFacts& device) {
  PlanSpec spec;
  spec.title = m.model, spec.command = "infer", spec.device = device, spec.inference = true;
  if (!device.assumed.empty()) spec.assumptions.push_back(device.assumed);
  spec.model = model_facts(config);
  spec.train.element = element_of(m.torch_dtype, spec.model, device, spec);
  spec.infer = {.context = m.max_model_len.value_or(spec.model.positions),
                .sequences = e.spec.max_sequences,
                .step_tokens = e.spec.max_step_tokens,
                .memory_share = e.spec.memory_fraction,
                .cache_codes = e.spec.cache_type != "auto",
                .cache_bytes = e.kv_cache_gb.value_or(0) * 1024 * 1024 * 1024};
  return spec;
}

PlanSpec scoring_spec(const ModelOptions& m, int64_t step_tokens, const Json& config, const DeviceFacts& device) {
  PlanSpec spec = inference_spec(m, EngineOptions(), config, device);
  spec.command = "score";
  spec.infer = {.context = step_tokens, .sequences = 1, .step_tokens = step_tokens, .cached = false};
  return spec;
}

Json config_named(const std::string& model) {
  std::error_code code;
  if (const auto gguf = gguf_meant(model)) return GgufModel::open(fs::canonical(*gguf), tower_beside(*gguf))->config();
  const bool folder = fs::is_directory(model, code);
  const fs::path path = folder ? fs::path(model) / "config.json" : fs::path(model);
  if (fs::is_regular_file(path, code)) return parse_json(read_file(path, 16 << 20), path.string(), Fault::Model);
  require(!folder, Fault::Model, "--model ", model, " holds no config.json");
  const bool named = !path.is_absolute() && model[0] != '.' && std::count(model.begin(), model.end(), '/') < 2;
  require(named, Fault::Usage, "--model ", model, ": there is no such folder; give one, or the name of a known shape");
  std::string name = fs::path(model).filename().string();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* ending : {"-instruct", "-base", "-chat"})
    if (name.ends_with(ending)) name = name.substr(0, name.size() - std::string(ending).size());
  return preset_config(name);
}

void hold_quantised(PlanSpec& spec, const Json& config, const quant::Wish& quantise) {
  const auto bits = quant::bits_of_weight(config, quantise);
  if (!bits) return;
  spec.train.held_bits = *bits, spec.tuning.holds_experts = spec.train.element == 2;
  spec.assumptions.push_back(
      str("weights of linear layers are held in ", std::round(*bits * 100) / 100, " bits, scales included"));
}

BlockExpansion grown_blocks(const TunerOptions& o, const ModelFacts& facts) {
  const bool alike = std::all_of(facts.keeps.begin(), facts.keeps.end(), [](Keeps k) { return keeps_tokens(k); }) &&
                     std::none_of(facts.sparse.begin(), facts.sparse.end(), [](bool sparse) { return sparse; });
  require(!facts.encoder && !facts.seeing && !facts.quantised && alike, Fault::Usage,
          "--tuner_type llamapro is for models that read text only, whose weights are plain and whose layers are all ",
          "attention and a feed-forward; this one (", facts.type, ") is trained by --tuner_type lora or full");
  return BlockExpansion::of(facts.layers, o.llamapro_num_new_blocks, o.llamapro_num_groups);
}

}  // namespace apus
