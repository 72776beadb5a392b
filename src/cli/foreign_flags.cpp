// SPDX-License-Identifier: Apache-2.0
#include "cli/foreign_flags.h"

namespace apus {
namespace {

// What the trainer that this dialect grew out of takes besides.
void trainer_fields(OptionTable& v) {
  v.no_effect({"run_name"}, "a run is called by its folder");
  v.no_effect({"overwrite_output_dir"}, "every run has a folder of its own; with --add_version false it is gone on in");
  v.no_effect({"load_best_model_at_end"},
              "the best checkpoint is named at the end; --create_checkpoint_symlink links it");
  v.no_effect({"eval_accumulation_steps", "eval_do_concat_batches", "batch_eval_metrics", "prediction_loss_only",
               "include_num_input_tokens_seen", "label_names", "length_column_name", "torch_empty_cache_steps",
               "skip_memory_metrics", "past_index"},
              "figures are summed while the rows pass, nothing is collected");
  v.no_effect({"logging_nan_inf_filter"}, "updates without finite gradients are left out and said");
  v.no_effect({"log_level", "log_level_replica", "log_on_each_node", "disable_tqdm"},
              "the log has one level, and the bar shows on terminals only");
  v.no_effect({"do_train", "do_eval", "do_predict"}, "the command says what is done");
  v.no_effect({"local_rank", "ddp_broadcast_buffers"}, "who a process is, its environment says");
  v.no_effect({"tf32", "half_precision_backend", "fp16_opt_level", "fp16_full_eval", "bf16_full_eval"},
              "--torch_dtype decides the number format");
  v.no_effect({"torch_compile", "torch_compile_backend", "torch_compile_mode", "jit_mode_eval", "use_ipex",
               "liger_kernel_config"},
              "operators are compiled and fused already");
  v.no_effect({"restore_callback_states_from_checkpoint"}, "a checkpoint holds all that a run goes on with");
  v.refuse({"use_cpu", "no_cuda"}, "--device cpu does this");
  v.refuse({"logging_strategy"}, "--logging_steps says how often", "steps");
  v.refuse({"eval_delay"}, "--eval_steps and --eval_on_start say when evaluations are", "0");
  v.refuse({"auto_find_batch_size"}, "--dry_run true tells beforehand what a batch needs");
  v.refuse({"adafactor"}, "--optim adafactor does this");
  v.refuse({"sortish_sampler"}, "--group_by_length true does this");
  v.refuse({"generation_max_length", "generation_config"}, "--max_new_tokens, --temperature and their kin say how");
  v.refuse({"generation_num_beams"}, "there is no beam search", "1");
}

}  // namespace

void foreign_training_fields(OptionTable& v) {
  trainer_fields(v);
  v.no_effect({"safe_serialization", "save_safetensors"}, "weights are always written as safetensors");
  v.no_effect({"average_tokens_across_devices"}, "the loss is always divided by the tokens of all devices");
  v.no_effect({"fsdp_transformer_layer_cls_to_wrap"}, "each layer of the model is gathered by itself");
  v.no_effect({"accelerator_config"}, "options say how batches are dealt out");
  v.refuse({"zero_hpz_partition_size", "deepspeed_autotp_size"},
           "--deepspeed zero1, zero2 and zero3 share out over all ranks alike", "1");
  v.no_effect({"ddp_find_unused_parameters"}, "parameters that are not used are always allowed");
  v.no_effect({"ddp_backend"}, "each kind of device has its own way to communicate");
  v.no_effect({"save_on_each_node"}, "the first process writes checkpoints, the others need none");
  v.no_effect({"full_determinism"}, "runs on the processor are deterministic");
  v.no_effect({"use_liger_kernel"}, "losses and norms are fused already");
  v.no_effect({"bf16", "fp16"}, "--torch_dtype decides the number format");
  v.no_effect({"hub_always_push"}, "the newest checkpoint is always uploaded when the one before it has gone");
  v.refuse({"hub_revision"}, "checkpoints go to the main branch; apus upload --model_revision chooses another");
  v.refuse({"mrl_dims"}, "this command trains causal language models");
  v.refuse({"use_flash_ckpt"}, "checkpoints are written atomically as they are");
  v.refuse({"swanlab_token", "swanlab_project", "swanlab_workspace", "swanlab_exp_name", "swanlab_notification_method",
            "swanlab_webhook_url", "swanlab_secret", "swanlab_mode"},
           "logs go to logging.jsonl, TensorBoard files and plots");
}

}  // namespace apus
