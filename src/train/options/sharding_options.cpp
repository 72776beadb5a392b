// SPDX-License-Identifier: Apache-2.0
#include "train/options/sharding_options.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "base/files.h"
#include "base/nearest.h"
#include "dist/launch/stage_cut.h"

namespace apus {

namespace {

constexpr int64_t kLargestSettings = 1 << 20;

bool is_auto(const Json& value) { return value.is_string() && value.get<std::string>() == "auto"; }

bool truth(const Json& value, const std::string& where) {
  if (value.is_boolean()) return value.get<bool>();
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text == "true" || text == "True" || text == "1") return true;
  if (text == "false" || text == "False" || text == "0") return false;
  fail(Fault::Usage, where, " must be true or false, it is ", text);
}

const Json& section(const Json& file, const char* key, const std::string& where) {
  static const Json none = Json::object();
  const auto found = file.find(key);
  if (found == file.end() || found->is_null()) return none;
  require(found->is_object(), Fault::Usage, where, ": ", key, " must hold an object");
  return *found;
}

Json read_json_file(const std::string& flag, const std::string& path, const std::string& possible) {
  std::error_code code;
  require(std::filesystem::is_regular_file(path, code), Fault::Usage, flag, " ", path,
          " is no file here; possible: ", possible, ", or a JSON file");
  Json file = parse_json(read_file(path, kLargestSettings), path, Fault::Usage);
  require(file.is_object(), Fault::Usage, path, " must hold an object");
  return file;
}

bool offloads(const Json& zero, const char* key, const std::string& path) {
  const Json& offload = section(zero, key, path);
  const std::string device = offload.value("device", Json("none")).is_string()
                                 ? offload.value("device", std::string("none"))
                                 : std::string("?");
  require(device == "none" || device == "cpu", Fault::Usage, path, ": ", key, ".device is '", device,
          "'; possible: none, cpu");
  return device == "cpu";
}

}  // namespace

void ShardingOptions::fields(OptionTable& v) {
  v("ddp_timeout", ddp_timeout, "several processes: seconds that one waits for another").above(0).at_most(1e8);
  v("max_restarts", max_restarts,
    "how often a run whose processes were killed, or lost each other or their device, goes on by itself from its "
    "newest "
    "checkpoint")
      .at_least(0);
  v("deepspeed", deepspeed,
    "several processes share out: zero1 the optimizer's state, zero2 gradients too, zero3 weights too; _offload keeps "
    "that on the host; or a DeepSpeed JSON file")
      .common();
  v("fsdp", fsdp, "fsdp2, \"full_shard auto_wrap\": weights, gradients and state are shared out; or a JSON file");
  v.at("sequence_parallel_size")
      .honoured(&sequence_parallel_size,
                "so many processes share out the tokens of each row, for rows that are too long for one: by heads of "
                "attention as "
                "far as key-value heads allow, and beyond that keys and values go round")
      .at_least(1);
  v("tensor_model_parallel_size", tensor_model_parallel_size,
    "so many processes share out the model's matrices: heads of attention, feed-forward, vocabulary")
      .at_least(1)
      .noted();
  v("sequence_parallel", sequence_parallel,
    "those processes share out the tokens between the matrices too: each keeps norms' inputs and what layers add to of "
    "its own tokens alone; as Megatron has it, and another thing than --sequence_parallel_size")
      .noted();
  v("expert_model_parallel_size", expert_model_parallel_size,
    "so many processes share out the experts of each layer, and send each other the tokens that meet them")
      .at_least(1)
      .noted();
  v("pipeline_model_parallel_size", pipeline_model_parallel_size,
    "so many processes share out the layers: each runs some of them, one process behind the other")
      .at_least(1)
      .at_most(kMostStages)
      .noted();
  v("virtual_pipeline_model_parallel_size", virtual_pipeline_model_parallel_size,
    "each of them runs so many pieces of the layers in turn, and waits for others less: with two of each of two "
    "processes the first runs the first and the third quarter")
      .at_least(1)
      .at_most(64)
      .noted();
  v("decoder_first_pipeline_num_layers", decoder_first_pipeline_num_layers,
    "layers of the first pipeline stage, instead of as many as the others have")
      .at_least(1)
      .noted();
  v("decoder_last_pipeline_num_layers", decoder_last_pipeline_num_layers,
    "layers of the last pipeline stage, which has the head")
      .at_least(1)
      .noted();
  v("pipeline_model_parallel_layout", pipeline_model_parallel_layout,
    "the layers of each: 6,7,7,4; or as Megatron writes it, \"Et*6|t*7|t*7|t*4L\"")
      .noted();
  v("shard_group_size", shard_group_size,
    "with zero3, full_shard or hybrid_shard: so many processes share out the weights, and each group of so many holds "
    "all; weights then travel within a group alone")
      .at_least(1)
      .shown_default("all processes; those of a machine with hybrid_shard");
  v("grad_reduce_in_fp32", grad_reduce_in_fp32,
    "add up gradients in f32, over micro-batches and processes, whatever type the weights are of: 4 bytes for each "
    "trained number instead of 2")
      .alias("accumulate_allreduce_grads_in_fp32")
      .shown_default("false; true where a DeepSpeed or FSDP file says so")
      .must_match();
  v("fsdp_config", fsdp_config,
    "settings of --fsdp: {\"reshard_after_forward\": false} keeps weights for the backward pass");
  v("broadcast_weights", broadcast_weights,
    "several processes: rank 0 sends its weights to all, instead of refusing where they differ");
  v("ddp_bucket_cap_mb", ddp_bucket_cap_mb, "several processes: gradients sent at a time")
      .at_least(1)
      .at_most(16384)
      .alias("ddp_bucket_mb");
}

// A type by the name that a file gives it: float32, fp32, torch.float32.
void ShardingOptions::take_sums(const Json& type, const std::string& where) {
  if (type.is_null() || is_auto(type)) return;
  const std::string name = type.is_string() ? type.get<std::string>() : type.dump();
  const bool wide = name == "fp32" || name == "float32" || name == "torch.float32" || name == "float";
  static const std::vector<std::string> narrow = {"bf16", "bfloat16", "torch.bfloat16",
                                                  "fp16", "float16",  "torch.float16"};
  require(wide || std::find(narrow.begin(), narrow.end(), name) != narrow.end(), Fault::Usage, where, " is '", name,
          "'; possible: fp32, or the type that is trained in (bf16, fp16)");
  sharding_.wide_sums = sharding_.wide_sums || wide;
}

int64_t ShardingOptions::least_ranks() const {
  const int64_t stages = pipeline_model_parallel_size;
  return stages * std::lcm(row_sharers() / stages, tensor_model_parallel_size * expert_model_parallel_size);
}

void ShardingOptions::read_deepspeed(const std::string& path, OptionTable& v) {
  const Json file = read_json_file("--deepspeed", path, "zero0, zero1, zero2, zero3, zero2_offload, zero3_offload");
  require(file.contains("zero_optimization"), Fault::Usage, path,
          " has no zero_optimization, which says what the processes share out (",
          R"({"zero_optimization": {"stage": 2}}); is it a file of DeepSpeed's? Possible too: --deepspeed zero2)");
  const Json& zero = section(file, "zero_optimization", path);
  require(zero.contains("stage"), Fault::Usage, path, ": zero_optimization has no stage; possible: 0, 1, 2, 3");
  const Json stage = zero["stage"];
  require(stage.is_number_integer() && stage >= 0 && stage <= 3, Fault::Usage, path,
          ": zero_optimization.stage must be 0, 1, 2 or 3, it is ", stage.dump());
  sharding_.stage = stage.get<int>();
  const bool states = offloads(zero, "offload_optimizer", path), parameters = offloads(zero, "offload_param", path);
  require(states || !parameters, Fault::Usage, path,
          ": offload_param without offload_optimizer is not possible; give both, or none");
  require(sharding_.stage < 3 || states == parameters, Fault::Usage, path,
          ": of stage 3 the optimizer's state goes to the host together with the parameters: give offload_param too");
  require(sharding_.stage > 0 || !states, Fault::Usage, path, ": offload_optimizer needs a stage above 0");
  sharding_.on_host = states;
  take_sums(file.value("communication_data_type", Json()), path + ": communication_data_type");
  take_sums(section(file, "data_types", path).value("grad_accum_dtype", Json()),
            path + ": data_types.grad_accum_dtype");
  if (const auto size = zero.find("reduce_bucket_size"); size != zero.end() && size->is_number()) {
    require(*size >= 1, Fault::Usage, path, ": reduce_bucket_size must be above 0");
    sharding_.bucket_elements = static_cast<int64_t>(size->get<double>());
  }
  for (const char* key : {"optimizer", "scheduler"})
    require(!file.contains(key), Fault::Usage, path, ": '", key,
            "' is chosen by options: take it out of the file, and give ",
            key == std::string("optimizer") ? "--optim, --learning_rate, --adam_beta1 ..." : "--lr_scheduler_type");
  for (const char* key :
       {"gradient_accumulation_steps", "train_micro_batch_size_per_gpu", "gradient_clipping", "train_batch_size"})
    if (const auto value = file.find(key); value != file.end() && !is_auto(*value)) {
      require(value->is_number(), Fault::Usage, path, ": ", key, " must be a number or \"auto\"");
      claims_.push_back({key, value->dump()});
    }
  for (const char* key : {"zero_hpz_partition_size", "mics_shard_size"})
    if (const auto size = zero.find(key); size != zero.end() && sharding_.stage == 3) {
      require(size->is_number_integer(), Fault::Usage, path, ": zero_optimization.", key, " must be a whole number");
      if (*size > 1) sharding_.group = size->get<int64_t>();
    }
  static const std::vector<std::string> used = {"zero_optimization",
                                                "gradient_accumulation_steps",
                                                "train_micro_batch_size_per_gpu",
                                                "gradient_clipping",
                                                "train_batch_size",
                                                "communication_data_type",
                                                "data_types"};
  static const std::vector<std::string> used_of_zero = {
      "stage",          "offload_optimizer", "offload_param", "reduce_bucket_size", "zero_hpz_partition_size",
      "mics_shard_size"};
  std::vector<std::string> unused;
  for (const auto& [key, value] : file.items())
    if (std::find(used.begin(), used.end(), key) == used.end()) unused.push_back(key);
  for (const auto& [key, value] : zero.items())
    if (std::find(used_of_zero.begin(), used_of_zero.end(), key) == used_of_zero.end())
      unused.push_back("zero_optimization." + key);
  if (!unused.empty())
    v.notes.push_back(str("--deepspeed ", path, ": these have no effect here: ", join(unused),
                          " (--torch_dtype decides the number format)"));
}

void ShardingOptions::read_fsdp_words(const std::string& words) {
  std::istringstream text(words);
  bool any = false;
  for (std::string word; text >> word; any = true) {
    if (word == "fsdp2" || word == "full_shard")
      sharding_.stage = 3;
    else if (word == "shard_grad_op")
      sharding_.stage = 3, sharding_.release_after_forward = false;
    else if (word == "hybrid_shard" || word == "hybrid_shard_zero2")
      sharding_.stage = 3, sharding_.group = 0, sharding_.release_after_forward = word == "hybrid_shard";
    else if (word == "offload")
      sharding_.on_host = true;
    else
      require(word == "auto_wrap" || word == "no_shard", Fault::Usage, "--fsdp: '", word,
              "' is not possible; possible: fsdp2, full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2, "
              "no_shard, auto_wrap, "
              "offload, or a JSON "
              "file");
  }
  require(any, Fault::Usage, "--fsdp is empty; possible: fsdp2, \"full_shard auto_wrap\", or a JSON file");
  require(sharding_.stage == 3 || !sharding_.on_host, Fault::Usage, "--fsdp offload belongs to full_shard");
}

void ShardingOptions::read_fsdp_config(const Json& config, const std::string& where, OptionTable& v) {
  std::vector<std::string> unused;
  for (const auto& [given, value] : config.items()) {
    const std::string key = given.starts_with("fsdp_") ? given.substr(5) : given, at = str(where, ": ", given);
    if (key == "version") {
      require(value == 1 || value == 2 || value == "1" || value == "2", Fault::Usage, at, " must be 1 or 2");
    } else if (key == "reshard_after_forward") {
      const bool words = value == "FULL_SHARD" || value == "SHARD_GRAD_OP";
      sharding_.release_after_forward = words ? value == "FULL_SHARD" : truth(value, at);
    } else if (key == "sharding_strategy" && value.is_string() && value.get<std::string>().size() > 1) {
      std::string words = value.get<std::string>();  // as torch names them: FULL_SHARD, _HYBRID_SHARD_ZERO2
      for (char& c : words) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      read_fsdp_words(words.starts_with('_') ? words.substr(1) : words);
    } else if (key == "activation_cpu_offload") {
      if (truth(value, at))
        v.notes.push_back(str(at,
                              ": activations stay on the device; --gradient_checkpointing true (the default) keeps "
                              "few and computes the others again"));
    } else if (key == "offload_params" || key == "cpu_offload") {
      sharding_.on_host = truth(value, at);
    } else if (key == "reduce_dtype" || (key == "mixed_precision_policy" && value.is_object())) {
      take_sums(value.is_object() ? value.value("reduce_dtype", Json()) : value, at);
    } else if (key == "cpu_ram_efficient_loading") {
      if (!truth(value, at)) v.notes.push_back(str(at, ": each rank reads its own rows of the files alone"));
    } else if (key == "activation_checkpointing") {
      v.notes.push_back(str(at, ": --gradient_checkpointing decides"));
    } else {
      unused.push_back(given);
    }
  }
  if (!unused.empty())
    v.notes.push_back(str(where, ": these have no effect here: ", join(unused),
                          " (each layer is gathered by itself; checkpoints hold a slice of the state from each rank)"));
}

void ShardingOptions::resolve(OptionTable& v) {
  sharding_ = {}, claims_.clear();
  sharding_.wide_sums = grad_reduce_in_fp32.value_or(false);
  require(!deepspeed || !fsdp, Fault::Usage, "give --deepspeed or --fsdp, not both: each says what is shared out");
  require(fsdp || fsdp_config.is_null() || fsdp_config.empty(), Fault::Usage, "--fsdp_config belongs to --fsdp");
  if (deepspeed) {
    const std::string& name = *deepspeed;
    const bool offload = name == "zero2_offload" || name == "zero3_offload";
    if (name.size() == 5 && name.starts_with("zero") && name[4] >= '0' && name[4] <= '3')
      sharding_.stage = name[4] - '0';
    else if (offload)
      sharding_.stage = name[4] - '0', sharding_.on_host = true;
    else
      read_deepspeed(name, v);
  }
  if (!fsdp) return take_shard_group();
  std::error_code code;
  if (!fsdp->ends_with(".json")) {
    read_fsdp_words(*fsdp);
  } else {
    const Json file = read_json_file("--fsdp", *fsdp, "fsdp2, \"full_shard auto_wrap\"");
    require(
        file.contains("fsdp") || file.contains("fsdp_config"), Fault::Usage, *fsdp,
        R"( has neither fsdp nor fsdp_config ({"fsdp": "full_shard auto_wrap", "fsdp_config": {...}}); possible too: )",
        "--fsdp fsdp2");
    const Json words = file.value("fsdp", Json("full_shard auto_wrap"));
    require(words.is_string(), Fault::Usage, *fsdp, ": fsdp must be a text such as \"full_shard auto_wrap\"");
    read_fsdp_words(words.get<std::string>());
    read_fsdp_config(file.contains("fsdp_config") ? section(file, "fsdp_config", *fsdp) : Json::object(), *fsdp, v);
  }
  if (fsdp_config.is_object()) read_fsdp_config(fsdp_config, "--fsdp_config", v);
  take_shard_group();
}

void ShardingOptions::take_shard_group() {
  if (grad_reduce_in_fp32)
    sharding_.wide_sums = *grad_reduce_in_fp32;  // what is said here is meant, whatever a file says
  if (!shard_group_size) return;
  require(sharding_.stage == 3, Fault::Usage,
          "--shard_group_size is of weights that are shared out: give --deepspeed zero3, or --fsdp hybrid_shard");
  sharding_.group = *shard_group_size;
}

void ShardingOptions::check_claims(const LoopOptions& loop, int64_t ranks) const {
  const int64_t readers = std::max<int64_t>(1, ranks / row_sharers()), micro_batches = loop.accumulation(readers),
                rows = loop.per_device_train_batch_size;
  const std::map<std::string, double> here = {
      {"gradient_accumulation_steps", static_cast<double>(micro_batches)},
      {"train_micro_batch_size_per_gpu", static_cast<double>(rows)},
      {"gradient_clipping", loop.max_grad_norm},
      {"train_batch_size", static_cast<double>(micro_batches * rows * readers)}};
  for (const Claim& claim : claims_)
    require(parse_json(claim.value, claim.key).get<double>() == here.at(claim.key), Fault::Usage, *deepspeed, ": ",
            claim.key, " is ", claim.value, ", and ", json_text(here.at(claim.key)),
            " by the options: make them the same, or write \"auto\"");
}

}  // namespace apus
