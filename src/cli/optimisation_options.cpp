// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "cli/train_options.h"
#include "train/record/schedule.h"

namespace apus {

namespace {
std::vector<std::string> words_of_optimizer() {
  std::vector<std::string> words = {"default", "lorap"};
  for (const auto& [name, info] : Registry<OptimizerInfo>::of().all())
    if (info.flag == "optimizer") words.push_back(name);
  return words;
}
}  // namespace

void GaloreOptions::fields(OptionTable& v) {
  v("use_galore", use_galore, "--optim galore_adamw, with the settings of the galore flags").must_match();
  v("galore_target_modules", galore_target_modules, "galore: parts of names of the matrices")
      .shown_default("all-linear")
      .must_match();
  v("galore_rank", galore_rank, "galore: dimensions of the space of gradients").at_least(1).must_match();
  v("galore_update_proj_gap", galore_update_proj_gap, "galore: updates between two choices of the space")
      .at_least(1)
      .must_match();
  v("galore_scale", galore_scale, "galore: factor of what comes back from the space").above(0).noted();
  v("galore_proj_type", galore_proj_type, "galore: which sides of a gradient are cut; std: the longer one's vectors")
      .choices({"std", "reverse_std", "right", "left", "full"})
      .must_match();
  v("galore_with_embedding", galore_with_embedding, "galore: embeddings too").must_match();
  v("galore_quantization", galore_quantization,
    "galore: moments in 8 bits, and a space that hardly turns is kept for longer (Q-GaLore)")
      .must_match();
  v("galore_cos_threshold", galore_cos_threshold, "Q-GaLore: mean cosine from which a space is kept for longer")
      .at_least(-1)
      .at_most(1)
      .must_match();
  v("galore_gamma_proj", galore_gamma_proj, "Q-GaLore: how many times as long a space is kept then")
      .at_least(1)
      .must_match();
  v("galore_queue_size", galore_queue_size, "Q-GaLore: choices whose cosines are averaged").at_least(1).must_match();
  v.no_effect({"galore_optim_per_parameter"}, "every parameter has its own state and its own update");
  v.refuse({"galore_proj_quant"}, "what spans a space is kept in float32", "false");
  v.no_effect({"galore_proj_bits", "galore_proj_group_size"}, "what spans a space is kept in float32");
}

std::string OptimisationOptions::whole_matrices() const {
  return galore.use_galore ? "--use_galore" : whole_matrices_flag(chosen_optimizer());
}

std::string OptimisationOptions::chosen_optimizer() const {
  const std::string asked = optimizer.value_or("default");
  const std::string own = asked == "default" || asked == "lorap" ? optimizer_named(optim) : asked;
  if (!galore.use_galore) return own;
  return own == "adamw_8bit" || galore.galore_quantization ? "galore_adamw_8bit" : "galore_adamw";
}

OptimizerArguments OptimisationOptions::optimizer_arguments() const {
  OptimizerArguments all = parse_optim_args(optim_args.value_or(""));
  if (!galore.use_galore) return all;
  all["rank"] = str(galore.galore_rank), all["update_proj_gap"] = str(galore.galore_update_proj_gap);
  all["scale"] = str(galore.galore_scale), all["proj_type"] = galore.galore_proj_type;
  if (!galore.galore_quantization) return all;
  all["cos_threshold"] = str(galore.galore_cos_threshold), all["gamma_proj"] = str(galore.galore_gamma_proj);
  all["queue_size"] = str(galore.galore_queue_size);
  return all;
}

std::vector<std::string> OptimisationOptions::optimizer_targets() const {
  if (!galore.use_galore) return optim_target_modules;
  std::vector<std::string> all = galore.galore_target_modules;
  if (galore.galore_with_embedding) {
    if (all.empty()) all.push_back("all-linear");
    all.push_back("embed_tokens");
  }
  return all;
}

void OptimisationOptions::check_optimizer(bool adapter) const {
  const std::string own = optimizer_named(optim);
  require(!galore.use_galore || ((own == "adamw" || own == "adamw_8bit") && optimizer.value_or("default") == "default"),
          Fault::Usage, "--use_galore true is of AdamW: give --optim adamw_torch or adamw_8bit, and no --optimizer");
  const OptimizerInfo& info = optimizer_info(chosen_optimizer());
  require(!info.averages || lr_scheduler_type.starts_with("constant"), Fault::Usage, "--optim ", optim,
          " averages the weights of the run instead of lowering the learning rate: give --lr_scheduler_type constant "
          "or constant_with_warmup");
  require(!info.fewer_dimensions || !adapter, Fault::Usage,
          galore.use_galore ? std::string("--use_galore true") : str("--optim ", optim),
          " keeps moments of whole matrices small, and the factors of an adapter are small already: give --tuner_type "
          "full with it, or leave it out");
  require(
      !info.of_shape || info.fewer_dimensions || !adapter, Fault::Usage, "--optim ", optim,
      " keeps a square of numbers for each side of a matrix, which for the long and thin factors of an adapter is more "
      "than the layer has: give --tuner_type full with it, or --optim adamw_torch");
  require(info.fewer_dimensions || optim_target_modules.empty(), Fault::Usage,
          "--optim_target_modules belongs to --optim galore_adamw and apollo_adamw");
  require(lisa_activated_layers == 0 || !adapter, Fault::Usage,
          "--lisa_activated_layers trains some layers whole for a while: give --tuner_type full with it");
}

void OptimisationOptions::fields(OptionTable& v) {
  v("learning_rate", learning_rate, "the highest learning rate, which the schedule reaches after the warm-up")
      .common()
      .at_least(0)
      .shown_default("1e-5 for full, 1e-4 for lora");
  v("lr_scheduler_type", lr_scheduler_type, "how the learning rate changes over the run")
      .choices(schedule_names())
      .noted();
  v("lr_scheduler_kwargs", lr_scheduler_kwargs, "further settings of the schedule, e.g. '{\"min_lr_rate\": 0.1}'")
      .noted();
  v("warmup_ratio", warmup_ratio, "share of the run in which the learning rate rises from 0")
      .common()
      .at_least(0)
      .at_most(0.999)
      .noted();
  v("warmup_steps", warmup_steps, "updates in which the learning rate rises from 0").at_least(0).noted();
  v("optim", optim, optimizers_text("optim")).choices(optimizer_names());
  v("optim_args", optim_args, "further settings of the optimizer: key=value,key=value").noted();
  v("optimizer", optimizer, optimizers_text("optimizer") + "; lorap: LoRA+").choices(words_of_optimizer());
  v("weight_decay", weight_decay, "weight decay, of all parameters but biases and norms").at_least(0).noted();
  v("adam_beta1", adam_beta1, "decay of the optimizer's first moment").at_least(0).at_most(0.9999999).noted();
  v("adam_beta2", adam_beta2, "decay of the optimizer's second moment").at_least(0).at_most(0.9999999).noted();
  v("adam_epsilon", adam_epsilon, "what AdamW adds to the root of its second moment").above(0).noted();
  v("master_weights", master_weights,
    "full bfloat16: keep a float32 copy of the weights; or round stochastically (4 bytes a weight less); or none")
      .choices({"float32", "stochastic", "none"});
  v("gradient_checkpointing", gradient_checkpointing,
    "recompute layers in the backward pass instead of keeping their activations: less memory, about a third slower")
      .common();
  v("vit_gradient_checkpointing", vit_gradient_checkpointing,
    "models that see: recompute trained towers' layers in the backward pass")
      .shown_default("gradient_checkpointing");
  v("gradient_checkpointing_kwargs", gradient_checkpointing_kwargs,
    "settings of --gradient_checkpointing: {\"layers\": N} recomputes the first N layers alone");
  v("recompute_granularity", recompute_granularity,
    "full: whole layers again; selective: what matrix products and attention gave is kept, only norms and gates are "
    "made again")
      .choices({"full", "selective"});
  v("recompute_modules", recompute_modules,
    "selective: what is made again besides: mlp, core_attn; layernorm always is");
  v("recompute_num_layers", recompute_num_layers,
    "full: the first N layers only; selective: --recompute_modules of the first N layers only")
      .at_least(0);
  v("recompute_method", recompute_method, "block: --recompute_num_layers counts layers; uniform: all of them")
      .choices({"block", "uniform"});
  v("neftune_noise_alpha", neftune_noise_alpha, "noise on the embeddings").at_least(0).noted();
  v("optim_target_modules", optim_target_modules,
    "galore_adamw, apollo_adamw: parts of names of the matrices, or all-linear")
      .shown_default("all-linear")
      .must_match();
  v.include(galore);
  v("lisa_activated_layers", lisa_activated_layers,
    "LISA: train so many layers at a time, drawn at random, beside embeddings and head; 0: all")
      .at_least(0)
      .must_match();
  v("lisa_step_interval", lisa_step_interval, "LISA: updates until other layers are drawn").at_least(1).must_match();
}

void OptimisationOptions::check() const {
  require(warmup_ratio == 0 || warmup_steps == 0, Fault::Usage, "give --warmup_ratio or --warmup_steps, not both");
  if (gradient_checkpointing_kwargs.is_object())
    for (const auto& [key, value] : gradient_checkpointing_kwargs.items())
      require(key == "use_reentrant" || (key == "layers" && value.is_number_integer()), Fault::Usage,
              "--gradient_checkpointing_kwargs: '", key, "' is not known; possible: {\"layers\": N}");
  check_recompute();
}

void OptimisationOptions::check_recompute() const {
  const bool selective = recompute_granularity == "selective";
  require(
      gradient_checkpointing || (!selective && !recompute_num_layers && !recompute_method && recompute_modules.empty()),
      Fault::Usage,
      "--recompute_granularity and its kin say how layers are recomputed, --gradient_checkpointing false that none is");
  require(!gradient_checkpointing_kwargs.is_object() || !gradient_checkpointing_kwargs.contains("layers") ||
              (!selective && !recompute_num_layers),
          Fault::Usage,
          "--gradient_checkpointing_kwargs with layers is --recompute_num_layers under another name; give that alone");
  require(
      recompute_method.value_or("block") == "block" || recompute_num_layers.value_or(1) == 1, Fault::Usage,
      "--recompute_method uniform with groups of ", recompute_num_layers.value_or(1),
      " layers is not available: each layer's input is kept; --recompute_method block recomputes the first N layers");
  require(selective || recompute_modules.empty(), Fault::Usage,
          "--recompute_modules belongs to --recompute_granularity selective");
  for (const std::string& name : recompute_modules)
    require(name == "mlp" || name == "core_attn" || name == "layernorm", Fault::Usage, "--recompute_modules ", name,
            " is not available; possible: mlp, core_attn, layernorm (which always is)");
}

OptimisationOptions::Recompute OptimisationOptions::recompute(int64_t layers) const {
  if (!gradient_checkpointing) return {};
  const Json& kwargs = gradient_checkpointing_kwargs;
  const bool by_kwargs = kwargs.is_object() && kwargs.contains("layers"),
             uniform = recompute_method.value_or("block") == "uniform";
  const int64_t asked = by_kwargs ? kwargs["layers"].get<int64_t>()
                        : uniform ? layers
                                  : recompute_num_layers.value_or(layers);
  const auto again = [&](const char* name) {
    return std::find(recompute_modules.begin(), recompute_modules.end(), name) != recompute_modules.end();
  };
  return {std::min(layers, asked), recompute_granularity == "selective", again("core_attn"), again("mlp")};
}

}  // namespace apus
