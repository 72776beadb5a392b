// SPDX-License-Identifier: Apache-2.0
#include "cli/megatron.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "abilities/combination.h"
#include "base/config_file.h"
#include "base/error.h"
#include "base/nearest.h"
#include "parallel/placement/stages.h"

namespace apus {

// --name value ..., --name=value; dashes in names are underscores.
std::vector<MegatronFlag> megatron_flags(const std::vector<std::string>& arguments) {
  std::vector<MegatronFlag> flags;
  for (const std::string& word : arguments) {
    if (word.size() < 3 || !word.starts_with("--")) {
      if (flags.empty()) flags.push_back({});  // what stands before all flags
      flags.back().values.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    MegatronFlag& flag =
        flags.emplace_back(MegatronFlag{word.substr(2, equals == std::string::npos ? equals : equals - 2), {}});
    std::replace(flag.name.begin(), flag.name.end(), '-', '_');
    if (equals != std::string::npos) flag.values.push_back(word.substr(equals + 1));
  }
  return flags;
}

namespace {

using Flag = MegatronFlag;
using Words = std::vector<std::string>;

// Another name for the same thing.
const std::map<std::string, std::string> kRenamed = {
    {"micro_batch_size", "per_device_train_batch_size"},
    {"lr", "learning_rate"},
    {"lr_warmup_fraction", "warmup_ratio"},
    {"lr_warmup_iters", "warmup_steps"},
    {"train_iters", "max_steps"},
    {"clip_grad", "max_grad_norm"},
    {"adam_eps", "adam_epsilon"},
    {"moe_aux_loss_coeff", "router_aux_loss_coef"},
    {"log_interval", "logging_steps"},
    {"save", "output_dir"},
    {"save_interval", "save_steps"},
    {"eval_interval", "eval_steps"},
    {"num_workers", "dataloader_num_workers"},
};

// Megatron's names of what --target_modules may mean: several of ours are one matrix there.
const std::map<std::string, Words> kModules = {{"linear_qkv", {"q_proj", "k_proj", "v_proj"}},
                                               {"linear_proj", {"o_proj"}},
                                               {"linear_fc1", {"gate_proj", "up_proj"}},
                                               {"linear_fc2", {"down_proj"}}};

// Settings of a stack of kernels and of how its processes talk. What a run computes does not depend on them.
const std::map<std::string, std::string> kWithoutMeaning = [] {
  std::map<std::string, std::string> out;
  const auto say = [&](const Words& names, const std::string& why) {
    for (const std::string& name : names) out[name] = why;
  };
  say({"cross_entropy_loss_fusion", "cross_entropy_fusion_impl", "masked_softmax_fusion", "bias_dropout_fusion",
       "bias_activation_fusion", "bias_swiglu_fusion", "apply_rope_fusion", "gradient_accumulation_fusion",
       "moe_grouped_gemm", "moe_permute_fusion", "moe_shared_expert_overlap", "attention_backend",
       "attention_softmax_in_fp32", "moe_router_dtype", "moe_token_dispatcher_type", "moe_enable_deepep"},
      "operators are fused as the device can, and routing is in float32");
  say({"overlap_param_gather", "overlap_grad_reduce", "overlap_p2p_comm", "tp_comm_overlap",
       "distributed_timeout_minutes", "distributed_backend", "align_param_gather"},
      "messages travel while the ranks compute");
  say({"moe_pad_expert_input_to_capacity"}, "tokens are packed, there is no padding");
  say({"merge_lora"}, "adapters are saved as they are, and apus merge-lora makes whole models of them");
  say({"use_precision_aware_optimizer"}, "--optim and --master_weights say what the optimizer keeps");
  say({"fp8_param_gather"},
      "weights are kept and saved in their own type, and apus export --quant_method fp8 writes FP8 of them");
  say({"linear_decoupled_in_proj",
       "manual_gc",
       "manual_gc_interval",
       "use_flash_attn",
       "no_initialization",
       "use_cpu_initialization",
       "load_from_cache_file",
       "eval_iters",
       "optimizer_offload_fraction",
       "tensorboard_dir",
       "tensorboard_log_interval",
       "tensorboard_queue_size",
       "log_throughput",
       "log_params_norm",
       "use_distributed_optimizer",
       "account_for_embedding_in_pipeline_split",
       "account_for_loss_in_pipeline_split",
       "padding_free",
       "no_load_optim",
       "no_load_rng",
       "offload_bridge",
       "no_save_rng"},
      "the run is as it would be without it");
  return out;
}();

struct Refusal {
  std::string why;
  Words idle;  // values that ask for nothing
};
const std::map<std::string, Refusal> kRefused = {
    {"mcore_model", {"checkpoints are HuggingFace's: give the model's folder as --model", {}}},
    {"mcore_adapter", {"adapters are PEFT's: --adapters, or --resume_from_checkpoint to go on with a run", {}}},
    {"load", {"checkpoints are HuggingFace's: --model, or --resume_from_checkpoint to go on with a run", {}}},
    {"calculate_per_token_loss", {"losses are means over all tokens of an update", {"true"}}},
    {"fp4_format", {"weights are trained in --torch_dtype bfloat16 or float32", {}}},
    {"moe_router_load_balancing_type", {"the balance loss is that of --moe_aux_loss_coeff", {"aux_loss"}}},
    {"moe_z_loss_coeff", {"there is the balance loss of --moe_aux_loss_coeff only", {"0"}}},
};

// Which layers a stage has.
const Words kLayouts = {"decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers",
                        "pipeline_model_parallel_layout"};
// Pieces of the layers that a stage runs in turn, in three ways.
const Words kPieces = {"virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank",
                       "num_layers_per_virtual_pipeline_stage"};

class Translation {
 public:
  Translation(const Words& arguments, const MegatronRun& run) : flags_(megatron_flags(arguments)), run_(run) {}

  OwnFlags made() {
    read_mesh(), read_groups();
    if (counts_updates_of_rounds()) taken_.insert("steps_per_generation");
    for (const Flag& flag : flags_) translate(flag);
    batches(), schedule(), optimizer();
    require(errors_.empty(), Fault::Usage, join(errors_, "\n"));
    return std::move(out_);
  }

 private:
  const Flag* last(const std::string& name) const {
    const Flag* found = nullptr;
    for (const Flag& flag : flags_)
      if (flag.name == name) found = &flag;
    return found;
  }
  bool has(const std::string& name) const { return last(name) != nullptr; }
  std::string text(const std::string& name, const std::string& usual) const {
    const Flag* flag = last(name);
    return flag && !flag->values.empty() ? flag->values.front() : usual;
  }
  bool truth(const std::string& name, bool usual) const {
    const Flag* flag = last(name);
    if (!flag) return usual;
    const std::string value = flag->values.empty() ? "true" : flag->values.front();
    return value == "true" || value == "True" || value == "1";
  }
  int64_t count(const std::string& name, int64_t usual) {
    const Flag* flag = last(name);
    if (!flag) return usual;
    taken_.insert(name);
    const std::string value = flag->values.empty() ? "" : flag->values.front();
    char* end = nullptr;
    const long long number = std::strtoll(value.c_str(), &end, 10);
    if (!value.empty() && *end == 0 && number > 0 && number <= 1 << 20) return number;
    errors_.push_back(str("--", name, " must be a number above 0, it is '", value, "'"));
    return usual;
  }
  void give(const std::string& name, const Words& values) {
    out_.arguments.push_back("--" + name);
    out_.arguments.insert(out_.arguments.end(), values.begin(), values.end());
  }

  struct MegatronMesh {
    int64_t tensor, pipeline, context, experts, expert_tensor, pieces = 1;
    int64_t sharers() const { return tensor * pipeline * context; }  // read the same rows
    int64_t least_ranks() const { return std::lcm(tensor * context, experts * expert_tensor) * pipeline; }
    std::string text() const {
      return str("tensor x pipeline x context x experts = ", tensor, " x ", pipeline, " x ", context, " x ", experts);
    }
  };

  void read_mesh() {
    MegatronMesh mesh{.tensor = count("tensor_model_parallel_size", 1),
                      .pipeline = count("pipeline_model_parallel_size", 1),
                      .context = count("context_parallel_size", 1),
                      .experts = count("expert_model_parallel_size", 1),
                      .expert_tensor = count("expert_tensor_parallel_size", 1)};
    mesh.pieces = pieces(mesh.pipeline);
    if (mesh.pieces > 1 && mesh.pipeline == 1)
      errors_.push_back("pieces of stages (--" + kPieces[0] + ") need stages: give --pipeline_model_parallel_size");
    if (has("sequence_parallel_size")) errors_.push_back("--sequence_parallel_size is --context_parallel_size here");
    const int64_t least = mesh.least_ranks(), ranks = run_.ranks > 0 ? run_.ranks : least;
    if (ranks % least != 0) {
      errors_.push_back(str("a mesh of ", mesh.text(), " needs ", least, " processes, or a multiple, and ", ranks,
                            ranks == 1 ? " runs" : " run", ": start with NPROC_PER_NODE=", least));
      return;
    }
    readers_ = ranks / mesh.sharers();
    for (const char* name : {"use_megatron_fsdp", "optimizer_cpu_offload", "sequence_parallel"}) taken_.insert(name);
    for (const Words* names : {&kLayouts, &kPieces}) taken_.insert(names->begin(), names->end());
    const int64_t experts = own_experts(mesh, ranks);
    if (is_possible(mesh, experts))
      as_it_is(mesh, experts);
    else
      by_rows(mesh, ranks);
  }

  // Experts lie on so many ranks, whose matrices those of a tensor group share out: as many parts as asked for.
  int64_t own_experts(const MegatronMesh& mesh, int64_t ranks) const {
    int64_t groups = std::max<int64_t>(1, mesh.experts * mesh.expert_tensor / mesh.tensor);
    while (ranks / mesh.tensor % groups != 0) --groups;
    return groups;
  }

  std::string algorithm_name() const {
    if (run_.command == "rlhf") return text(chooser_of("rlhf").c_str(), usual_algorithm("rlhf").c_str());
    const std::string task = text("task_type", "causal_lm");
    return task == "causal_lm" ? run_.command : task;
  }

  bool is_possible(const MegatronMesh& mesh, int64_t experts) {
    if (!run_.model || mesh.tensor * experts * mesh.pipeline == 1) return false;
    if (has("deepspeed") || has("fsdp") || truth("use_megatron_fsdp", false) || looks_at_matrices()) return false;
    if (mesh.pipeline > 1 && !stages_are_possible(mesh)) return false;
    const AlgorithmInfo* algorithm = Registry<AlgorithmInfo>::of().find(algorithm_name());
    if (!algorithm) return false;  // the command itself says so
    const bool offload = truth("optimizer_cpu_offload", false);
    return refusals({.algorithm = algorithm,
                     .needs = {.whole_logits = whole_logits(), .ahead = ahead()},
                     .model = run_.model,
                     .tensor = mesh.tensor,
                     .experts = experts,
                     .stages = mesh.pipeline,
                     .tokens = mesh.context,
                     .zero = offload ? 2 : 1,
                     .tuner = text("tuner_type", text("train_type", "full")),
                     .dora = truth("use_dora", false),
                     .quantised = has("quant_method") || run_.model->quantised,
                     .asks_reference = truth("precompute_ref_log_probs", false),
                     .fp8 = has("fp8_format")})
        .empty();
  }

  // Of a loss that looks at all words; the run itself will know.
  std::string whole_logits() const {
    for (const char* name : {"enable_eaft_loss", "enable_asft_loss"})
      if (truth(name, false)) return str("--", name);
    return "";
  }

  // The flag that trains the head which guesses tokens ahead.
  std::string ahead() const { return text("mtp_num_layers", "0") == "0" ? "" : "--mtp_num_layers"; }

  // Of each stage.
  int64_t pieces(int64_t stages) {
    const int64_t said = std::max(count(kPieces[0], 1), count(kPieces[1], 1));
    if (said > 1 || !has(kPieces[2]) || !run_.model) return said;
    const int64_t each = count(kPieces[2], 1) * stages;
    if (run_.model->layers % each != 0)
      errors_.push_back(str("--", kPieces[2], " ", count(kPieces[2], 1), " x ", stages, " stages: the ",
                            run_.model->layers, " layers of the model are no multiple of that"));
    return std::max<int64_t>(1, run_.model->layers / each);
  }

  bool stages_are_possible(const MegatronMesh& mesh) {
    StageWish wish{
        .stages = mesh.pipeline, .pieces = mesh.pieces, .layout = text("pipeline_model_parallel_layout", "")};
    if (has("decoder_first_pipeline_num_layers")) wish.first = count("decoder_first_pipeline_num_layers", 0);
    if (has("decoder_last_pipeline_num_layers")) wish.last = count("decoder_last_pipeline_num_layers", 0);
    try {
      stage_layers(run_.model->layers, wish, run_.model->seen_layers);
      return true;
    } catch (const Error& error) {
      out_.notes.push_back(error.what());
      return false;
    }
  }

  bool looks_at_matrices() const { return text("optimizer", "adam").ends_with("muon"); }

  void as_it_is(const MegatronMesh& mesh, int64_t experts) {
    if (mesh.tensor > 1) give("tensor_model_parallel_size", {str(mesh.tensor)});
    if (shares_residual(mesh)) give("sequence_parallel", {"true"});
    if (mesh.context > 1) give("sequence_parallel_size", {str(mesh.context)});
    if (mesh.pipeline > 1) {
      give("pipeline_model_parallel_size", {str(mesh.pipeline)});
      for (const std::string& name : kLayouts)
        if (const Flag* layout = last(name)) give(name, layout->values);
      if (mesh.pieces > 1) give(kPieces[0], {str(mesh.pieces)});
    }
    if (experts > 1) give("expert_model_parallel_size", {str(experts)});
    give("deepspeed", {truth("optimizer_cpu_offload", false) ? "zero2_offload" : "zero1"});
    if (experts != mesh.experts)
      out_.notes.push_back(str(mesh.text(), ": here the experts lie on ", experts, experts == 1 ? " rank" : " ranks",
                               ", and ", mesh.tensor, " share out their matrices as they do the others"));
  }

  // Without others that share out matrices it asks for nothing.
  bool shares_residual(const MegatronMesh& mesh) const { return mesh.tensor > 1 && truth("sequence_parallel", false); }

  // So many as can share the tokens of a row: at most those asked for, and a divisor of them.
  int64_t row_sharers(int64_t asked) const {
    const AlgorithmInfo* algorithm = Registry<AlgorithmInfo>::of().find(algorithm_name());
    if (!algorithm) return asked;
    Combination wanted{.algorithm = algorithm, .needs = {.ahead = ahead()}, .model = run_.model, .zero = 3};
    const size_t anyway = refusals(wanted).size();
    for (wanted.tokens = asked; wanted.tokens > 1; --wanted.tokens)
      if (asked % wanted.tokens == 0 && refusals(wanted).size() == anyway) break;
    return wanted.tokens;
  }

  // Which processes read the same rows, and that none of them holds the whole model, is what a mesh is to a run. Those
  // processes share out the tokens of the rows, and all of them the weights.
  void by_rows(const MegatronMesh& mesh, int64_t ranks) {
    const int64_t sharers = row_sharers(mesh.sharers());
    readers_ = ranks / sharers;
    const bool asked = mesh.tensor * mesh.pipeline * mesh.experts > 1 || truth("use_megatron_fsdp", false) ||
                       sharers < mesh.sharers(),
               weights = asked && !looks_at_matrices(), offload = truth("optimizer_cpu_offload", false);
    if (sharers > 1) give("sequence_parallel_size", {str(sharers)});
    if (shares_residual(mesh))
      unused_["no matrices are shared out, between which tokens could be"].insert("--sequence_parallel");
    for (const Words* names : {&kLayouts, &kPieces})
      for (const std::string& name : *names)
        if (has(name)) unused_["the layers are not run by stages"].insert("--" + name);
    if (!has("deepspeed") && !has("fsdp") && !looks_at_matrices() && (ranks > 1 || weights || offload))
      give("deepspeed", {str(weights ? "zero3" : offload ? "zero2" : "zero1", offload ? "_offload" : "")});
    if (mesh.sharers() * mesh.experts == 1 && !weights) return;
    std::vector<std::string> shared;
    if (sharers > 1) shared.push_back(str(sharers, " processes share out the tokens of each row"));
    if (weights)
      shared.push_back(
          str(sharers > 1 ? "all of them" : "all processes share out", " weights, gradients and state (zero3)"));
    else if (asked)
      shared.push_back("each process holds all weights, as muon looks at whole matrices");
    out_.notes.push_back(str(mesh.text(), ": here ", join(shared, ", and "), "; the losses are the same"));
  }

  // Of layers that are run again together: what is kept more does not change what a run computes.
  void read_groups() {
    const std::string each = text("recompute_num_layers", "1");
    if (each == "1" || text("recompute_method", "") != "uniform") return;
    taken_.insert("recompute_num_layers");
    out_.notes.push_back(str("--recompute_num_layers ", each,
                             " with --recompute_method uniform: here the input of each layer is kept, not of every ",
                             each, " together; the losses are the same"));
  }

  static Words own_modules(const Words& theirs) {
    Words out;
    for (const std::string& name : theirs) {
      const auto found = kModules.find(name);
      const Words ours = found == kModules.end() ? Words{name} : found->second;
      out.insert(out.end(), ours.begin(), ours.end());
    }
    return out;
  }

  void translate(const Flag& flag) {
    if (taken_.count(flag.name)) return;
    if (flag.name == "target_modules") return give(flag.name, own_modules(flag.values));
    if (const auto ours = kRenamed.find(flag.name); ours != kRenamed.end()) return give(ours->second, flag.values);
    if (kWithoutMeaning.count(flag.name)) {
      unused_[kWithoutMeaning.at(flag.name)].insert("--" + flag.name);
      return;
    }
    if (const auto refused = kRefused.find(flag.name); refused != kRefused.end()) {
      const Words& idle = refused->second.idle;
      const bool asks = flag.values.empty() || std::find(idle.begin(), idle.end(), flag.values.front()) == idle.end();
      if (asks) errors_.push_back(str("--", flag.name, " is not possible: ", refused->second.why));
      return;
    }
    static const std::set<std::string> elsewhere = {
        "global_batch_size", "min_lr",          "lr_decay_style",        "optimizer",
        "finetune",          "no_save_optim",   "recompute_granularity", "recompute_modules",
        "exp_avg_dtype",     "exp_avg_sq_dtype"};
    if (elsewhere.count(flag.name)) return;
    if (flag.name.empty())
      out_.arguments.insert(out_.arguments.begin(), flag.values.begin(), flag.values.end());
    else
      give(flag.name, flag.values);
  }

  // There --steps_per_generation counts updates, of --global_batch_size answers each; here micro-batches of a process.
  bool counts_updates_of_rounds() const {
    return run_.command == "rlhf" && readers_ > 0 && has("steps_per_generation") && !has("gradient_accumulation_steps");
  }

  void batches() {
    const int64_t global = count("global_batch_size", 16), micro = count("micro_batch_size", 1);
    if (readers_ > 0 && !has("gradient_accumulation_steps")) {
      const int64_t at_once = micro * readers_;
      if (global % at_once != 0)
        errors_.push_back(str("--global_batch_size ", global, " is no multiple of the ", at_once,
                              " rows that one pass of all processes takes (--micro_batch_size ", micro, " x ", readers_,
                              "): give ", (global + at_once - 1) / at_once * at_once));
      else
        give("gradient_accumulation_steps", {str(global / at_once)});
      if (counts_updates_of_rounds())
        give("steps_per_generation", {str(count("steps_per_generation", 1) * std::max<int64_t>(1, global / at_once))});
    }
    if (!has("tuner_type") && !has("train_type")) give("tuner_type", {"full"});
    if (!truth("finetune", true))
      errors_.push_back("--finetune false goes on with a run: give its checkpoint as --resume_from_checkpoint");
    if (truth("no_save_optim", false)) give("save_only_model", {"true"});
    const std::string granularity = text("recompute_granularity", "selective");
    if (granularity == "none") return give("gradient_checkpointing", {"false"});
    give("recompute_granularity", {granularity});
    if (granularity != "selective") return;
    const Flag* parts = last("recompute_modules");
    give("recompute_modules", parts ? parts->values : Words{"core_attn"});
  }

  void schedule() {
    const std::string style = text("lr_decay_style", "cosine"), least = text("min_lr", "0");
    const bool lowest = std::strtod(least.c_str(), nullptr) > 0;
    if (style == "cosine" && lowest) {
      give("lr_scheduler_type", {"cosine_with_min_lr"});
      give("lr_scheduler_kwargs", {"{\"min_lr\": " + least + "}"});
    } else if (style == "cosine" || style == "linear" || style == "constant") {
      give("lr_scheduler_type", {style == "constant" ? "constant_with_warmup" : style});
      if (lowest && style == "linear")
        errors_.push_back("--min_lr with --lr_decay_style linear is not possible: cosine has a lowest rate");
    } else {
      errors_.push_back(str("--lr_decay_style ", style, " is not possible; possible: cosine, linear, constant"));
    }
  }

  // Of less than 32 bits.
  bool narrow_moments() const {
    const auto narrow = [&](const char* name) { return text(name, "fp32") != "fp32"; };
    return narrow("exp_avg_dtype") || narrow("exp_avg_sq_dtype");
  }

  void optimizer() {
    const std::string name = text("optimizer", "adam");
    const bool narrow = name == "adam" && narrow_moments();
    if (name == "adam")
      give("optim", {narrow ? "adamw_8bit" : "adamw_torch"});
    else if (name == "sgd")
      give("optim", {"sgd"});
    else if (name == "muon" || name == "dist_muon")
      give("optimizer", {"muon"});
    else
      errors_.push_back(str("--optimizer ", name, " is not possible; possible: adam, sgd, muon"));
    if (narrow)
      out_.notes.push_back(
          "--exp_avg_dtype, --exp_avg_sq_dtype: here moments are float32, or 8 bits with scales, and these are meant: "
          "--optim adamw_8bit");
    for (const auto& [why, names] : unused_)
      out_.notes.push_back(join(Words(names.begin(), names.end())) + ": no effect here: " + why);
  }

  const std::vector<Flag> flags_;
  const MegatronRun& run_;
  int64_t readers_ = 0;
  std::set<std::string> taken_;
  std::map<std::string, std::set<std::string>> unused_;  // by why
  Words errors_;
  OwnFlags out_;
};

}  // namespace

OwnFlags own_flags(const std::vector<std::string>& megatron_arguments, const MegatronRun& run) {
  return Translation(megatron_arguments, run).made();
}

std::vector<std::string> without_file(const std::vector<std::string>& arguments) {
  if (arguments.empty() || !names_config_file(arguments[0])) return arguments;
  const ConfigFile file = read_config_file(arguments[0]);
  for (const auto& [name, value] : file.environment) ::setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
  Words all;
  for (ConfigEntry entry : file.entries) {
    fill_in_environment(entry, arguments[0]);
    all.push_back("--" + entry.key);
    if (entry.value.is_object())
      all.push_back(entry.value.dump());
    else
      all.insert(all.end(), entry.words.begin(), entry.words.end());
  }
  all.insert(all.end(), arguments.begin() + 1, arguments.end());
  return all;
}

std::string value_of(const std::vector<std::string>& arguments, const std::string& flag) {
  std::string value;
  for (const Flag& each : megatron_flags(arguments))
    if (each.name == flag) value = each.values.empty() ? "" : each.values.front();
  return value;
}

}  // namespace apus
