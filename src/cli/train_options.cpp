// SPDX-License-Identifier: Apache-2.0
#include "cli/train_options.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/nearest.h"
#include "base/sizes.h"
#include "cli/foreign_flags.h"
#include "data/read/byte_source.h"
#include "train/record/tracker.h"

namespace apus {

void DataOptions::fields(OptionTable& v) {
  v.group("Data");
  v("dataset", dataset,
    "training rows: files (.jsonl .json .csv .txt .parquet .arrow, also .gz .zst), folders, globs, or hub ids; #N "
    "takes N rows")
      .common()
      .restored("data");
  v("val_dataset", val_dataset, "rows for evaluation: files, folders, globs or hub ids, as --dataset takes them")
      .common()
      .restored("data");
  v("split_dataset_ratio", split_dataset_ratio,
    "share of the training rows kept for evaluation when there is no --val_dataset")
      .common()
      .at_least(0)
      .at_most(0.999)
      .restored("data");
  v("cached_dataset", cached_dataset, "folders made by apus export --to_cached_dataset true").restored("data");
  v("cached_val_dataset", cached_val_dataset, "folders made by apus export --to_cached_dataset true, for evaluation")
      .restored("data");
  v("columns", columns, "rename columns: '{\"their\": \"ours\"}'").restored("data");
  encoding_field(v, encoding);
  v("model_name", model_name, "put for {{NAME}} in the rows: one name, or the Chinese and the English one");
  v("model_author", model_author, "put for {{AUTHOR}} in the rows: one name, or the Chinese and the English one");
  v("custom_dataset_info", custom_dataset_info,
    "dataset_info.json files that give datasets names: dataset_path or hub id, subsets, columns");
  v("disable_auto_column_mapping", disable_auto_column_mapping, "rename columns by --columns alone");
  v("strict", strict, "stop at the first bad row instead of leaving it out").restored("data");
  v("data_seed", data_seed, "seed of shuffling and sampling rows").must_match().restored("data");
  v("dataset_shuffle", dataset_shuffle, "shuffle the rows after reading").restored("data");
  v("val_dataset_shuffle", val_dataset_shuffle, "shuffle the rows for evaluation after reading").restored("data");
  v("train_dataloader_shuffle", train_dataloader_shuffle, "shuffle the rows anew in every epoch").must_match();
  v("streaming", streaming,
    "read rows as they are needed, for data larger than memory; needs --max_steps or --max_epochs")
      .must_match()
      .restored("data");
  v("shuffle_buffer_size", shuffle_buffer_size, "rows among which a stream is shuffled").at_least(1).restored("data");
  v("interleave_prob", interleave_prob, "mix several datasets with these probabilities instead of one after the other")
      .restored("data");
  v("stopping_strategy", stopping_strategy, "the mix ends with the first dataset that is used up, or when all are")
      .choices({"first_exhausted", "all_exhausted"})
      .restored("data");
  v("packing", packing, "fill sequences up to --packing_length with whole rows").common().must_match().restored("data");
  v("packing_length", packing_length, "tokens of a pack").at_least(1).shown_default("--max_length").restored("data");
  v("packing_strategy", packing_strategy, "how rows are packed. binpack: best fit; sequential: in order")
      .choices({"binpack", "sequential"})
      .restored("data");
  v("loss_scale", loss_scale,
    "which tokens are learnt: default (answers), last_round, all; with +name of a table of weights: "
    "ignore_empty_think, ignore_think_prefix, hermes, react, qwen, agentflan, alpha_umi, or a JSON file")
      .restored("data");
  v("add_non_thinking_prefix", add_non_thinking_prefix,
    "models that can think get the empty thought before answers without one");
  v("disable_ignore_empty_think", disable_ignore_empty_think, "learn the empty thought too");
  v("is_binary_loss_scale", is_binary_loss_scale, "weights 0 and 1 count as labels alone")
      .shown_default("when there are no others");
  v("lazy_tokenize", lazy_tokenize, "encode rows when they are needed instead of all beforehand")
      .shown_default("false");
  v("group_by_length", group_by_length, "rows of like length share a micro-batch");
  v("dataset_num_proc", dataset_num_proc, "threads that tokenise").at_least(1);
  v.no_effect({"packing_num_proc"}, "packing takes no time worth sharing");
  v.no_effect({"load_from_cache_file", "download_mode"}, "rows are read anew; --cached_dataset keeps prepared ones");
  v.no_effect({"remove_unused_columns"}, "columns without a meaning are ignored");
  v.no_effect({"dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_pin_memory",
               "dataloader_persistent_workers", "dataloader_drop_last"},
              "data is prepared on threads of the program itself");
  v.no_effect({"use_logits_to_keep"}, "logits are computed only where a token is learnt");
}

void DataOptions::check(bool has_other_rows) const {
  require(has_other_rows || !dataset.empty() || !cached_dataset.empty(), Fault::Usage,
          "--dataset is needed: files, folders or hub ids of the training rows");
  for (const auto& [flag, names] : {std::pair("--model_name", &model_name), {"--model_author", &model_author}})
    require(names->size() <= 2, Fault::Usage, flag, " takes one name, or the Chinese and the English one, not ",
            names->size());
  check_encoding(encoding);
  require(interleave_prob.empty() || interleave_prob.size() == dataset.size(), Fault::Usage,
          "--interleave_prob needs one number for each of the ", dataset.size(), " datasets, it has ",
          interleave_prob.size());
}

void training_template_fields(OptionTable& v, TemplateOptions& prompt, DataOptions& data) {
  prompt.fields(v);
  v.at("preserve_thinking").refusal.clear();
  v.at("preserve_thinking").target = &data.preserve_thinking;
  v.at("preserve_thinking").help = "keep the thoughts of earlier turns";
  v.at("truncation_strategy").choices({"delete", "left", "right", "split"});
  v.at("max_length").help = "longest row in tokens";
  v.at("max_length").restored("data");
  for (const char* name : {"response_prefix", "chat_template_kwargs", "truncation_strategy"})
    v.at(name).restored("model");
  v.at("truncation_strategy").help =
      "for longer rows: leave them out, cut them, or (plain text) split them into several";
}

namespace {

// Flags of tuners that are not available, and of what needs no saying here.
void other_tuners(OptionTable& v) {
  v.no_effect({"tuner_backend"}, "adapters are made by the program itself, in PEFT's format");
  v.refuse({"use_swift_lora"}, "adapters are PEFT's");
  v.refuse({"reft_layers", "reft_intervention_type", "reft_args"},
           "--tuner_type lora (with --use_rslora, --use_dora, --lorap_lr_ratio), adalora, bone, boft, ia3, fourierft, "
           "vera, ln_tuning, prompt_tuning, adapter, longlora, llamapro and full are available");
}

}  // namespace

void LoraGaOptions::fields(OptionTable& v) {
  v("lora_ga_batch_size", batch_size, "lora-ga: rows of a batch whose gradient is taken").at_least(1);
  v("lora_ga_iters", iters, "lora-ga: batches whose gradients are added").at_least(1);
  v("lora_ga_max_length", max_length, "lora-ga: rows with more tokens are passed over").at_least(1);
  v("lora_ga_direction", how.direction,
    "lora-ga: which of a gradient's singular vectors A and B begin with: the first r, or those from r to 2r")
      .choices({"ArBr", "A2rBr", "ArB2r"});
  v("lora_ga_scale", how.scale, "lora-ga: how long the vectors are that A and B begin with")
      .choices({"gd", "unit", "stable", "weightS"});
  v("lora_ga_stable_gamma", how.stable_gamma, "lora-ga: stable divides by the root of this").above(0);
}

void TunerOptions::fields(OptionTable& v) {
  v.group("Tuner");
  v("tuner_type", tuner_type,
    "train low-rank factors beside the weights, or the weights themselves (full); adalora, bone, boft, ia3, fourierft, "
    "vera, ln_tuning, prompt_tuning, adapter: other adapters; longlora: factors, trained with attention over groups of "
    "tokens; "
    "llamapro: further layers; lora_llm: factors in the language model only, which is lora for a model that reads text "
    "only")
      .common()
      .choices({"lora", "full", "adalora", "bone", "boft", "ia3", "fourierft", "vera", "ln_tuning", "prompt_tuning",
                "adapter", "longlora", "llamapro", "lora_llm"})
      .alias("train_type", "its old name")
      .alias("sft_type", "its old name")
      .must_match()
      .restored("model");
  v("adapters", adapters, "an adapter to train on from").common().alias("lora");
  v("target_modules", target_modules,
    "layers with factors: last parts of their names, or all-linear (experts included), all-embedding, all-router")
      .common()
      .must_match();
  v("target_regex", target_regex,
    "layers with factors: an expression that whole names must match, instead of --target_modules")
      .must_match();
  v("target_parameters", target_parameters,
    "experts with factors, as PEFT stacks them: mlp.experts.gate_up_proj, mlp.experts.down_proj (needs --lora_dropout "
    "0)")
      .must_match();
  v("modules_to_save", modules_to_save, "modules trained whole beside the factors: embed_tokens, lm_head, norm, ...")
      .must_match();
  v("trainable_token_indices", trainable_token_indices,
    "tokens (ids or texts) whose rows alone are trained of the embedding and of a head tied to it; "
    "{\"lm_head\": [ids], ...} for tables by name")
      .must_match();
  v("lora_rank", lora_rank, "rank of LoRA: columns of its factors; higher learns more and takes more memory")
      .common()
      .at_least(1)
      .must_match();
  v("lora_alpha", lora_alpha, "scale of LoRA: its factors count alpha / rank times").common().above(0).must_match();
  v("lora_dropout", lora_dropout, "LoRA: share of inputs dropped before the factors")
      .at_least(0)
      .at_most(0.99)
      .alias("lora_dropout_p", "its old name")
      .noted();
  v("lora_bias", lora_bias, "LoRA: train the layers' biases too").choices({"none", "all"});
  v("lora_dtype", lora_dtype, "LoRA: number format of the factors")
      .choices({"float32", "bfloat16"})
      .shown_default("float32");
  v("init_weights", init_weights, "first values: true, false, gaussian, pissa, pissa_niter_N, olora, lora-ga")
      .alias("init_lora_weights")
      .must_match();
  v("use_rslora", use_rslora, "LoRA: scale by alpha / sqrt(rank)").must_match();
  v("use_dora", use_dora, "LoRA: train the lengths of the weight's rows too (DoRA)").must_match();
  v("lorap_lr_ratio", lorap_lr_ratio, "LoRA+: B factors learn this many times faster; 10 to 16 is usual")
      .above(0)
      .noted();
  v.include(lora_ga);
  v("llamapro_num_new_blocks", llamapro_num_new_blocks,
    "llamapro: layers that are added, each a copy of the one before it")
      .at_least(1)
      .must_match();
  v("llamapro_num_groups", llamapro_num_groups, "llamapro: runs of layers, behind each of which one is added")
      .at_least(1)
      .shown_default("--llamapro_num_new_blocks")
      .must_match();
  v.include(kinds);
  v("freeze_parameters", freeze_parameters, "full: parameters whose names begin so stay as they are");
  v("freeze_parameters_regex", freeze_parameters_regex,
    "full: parameters whose names match this expression stay as they are");
  v("freeze_parameters_ratio", freeze_parameters_ratio,
    "full: freeze this share of all parameters, from the embedding up")
      .at_least(0)
      .at_most(1);
  v("freeze_llm", freeze_llm, "models that see: the language model stays as it is").must_match();
  v("freeze_vit", freeze_vit, "models that see: the towers stay as they are").must_match();
  v("freeze_aligner", freeze_aligner, "models that see: what joins towers and language model stays as it is")
      .must_match();
  v("vit_lr", vit_lr, "models that see: the learning rate of the towers").shown_default("learning_rate").at_least(0);
  v("aligner_lr", aligner_lr, "models that see: the learning rate of what joins towers and language model")
      .shown_default("learning_rate")
      .at_least(0);
  v("trainable_parameters", trainable_parameters, "full: exceptions from the freezing, by the beginning of the name");
  v("trainable_parameters_regex", trainable_parameters_regex,
    "full: exceptions from the freezing, by an expression found in the name");
  other_tuners(v);
}

void TunerOptions::check() const {
  require(
      !lorap_lr_ratio || (!vit_lr && !aligner_lr), Fault::Usage,
      "--lorap_lr_ratio gives each factor of an adapter a learning rate, and --vit_lr and --aligner_lr each group of "
      "weights: give one of them");
  require(adapters.size() <= 1, Fault::Usage,
          "--adapters: one adapter can be trained on from; merge the others first (apus merge-lora)");
  const bool freezes = !freeze_parameters.empty() || freeze_parameters_regex || freeze_parameters_ratio > 0 ||
                       !trainable_parameters.empty() || trainable_parameters_regex;
  require(!grows() || !freezes, Fault::Usage,
          "--tuner_type llamapro trains the layers that it adds: leave out --freeze_parameters, --trainable_parameters "
          "and their kin");
  require(!lora() || !freezes, Fault::Usage,
          "--freeze_parameters, --trainable_parameters and their kin belong to --tuner_type full; with lora the base "
          "is frozen, ",
          "and --modules_to_save names what is trained whole");
  require(lora() || adapters.empty(), Fault::Usage,
          "--adapters with --tuner_type full: merge the adapter into the model first (apus merge-lora)");
  const bool plain = tuner_type == "lora" || tuner_type == "longlora";
  require(plain || (!use_dora && !use_rslora && !lorap_lr_ratio), Fault::Usage,
          "--use_dora, --use_rslora and --lorap_lr_ratio belong to --tuner_type lora");
  require(plain || !lora() || target_parameters.empty(), Fault::Usage,
          "--target_parameters: factors over stacked experts belong to --tuner_type lora");
  require(plain || !lora() || init_weights == "true" || init_weights == "false", Fault::Usage, "--init_weights ",
          init_weights, " with --tuner_type ", tuner_type, " is not available; possible: true, false");
  require(
      init_weights != "lora-ga" || (!use_dora && target_parameters.empty() && adapters.empty()), Fault::Usage,
      "--init_weights lora-ga makes factors of plain LoRA: leave out --use_dora, --target_parameters and --adapters");
  if (LoraConfig config{.bias = lora_bias, .modules_to_save = modules_to_save}; lora())
    kinds.describe(tuner_type, config);
  require(
      target_parameters.empty() || !lora() || (lora_dropout == 0 && !use_dora), Fault::Usage,
      "--target_parameters: factors over stacked experts drop nothing and train no lengths of rows, in PEFT neither: "
      "give --lora_dropout 0 and no --use_dora");
  for (const std::string& word : target_modules)
    require(!use_dora || (word != "all-embedding" && word != "embed_tokens" && word != "lm_head"), Fault::Usage,
            "--target_modules ", word,
            " with --use_dora true is not available; use plain LoRA there, or train it whole with --modules_to_save");
}

void FolderOptions::fields(OptionTable& v) {
  v("output_dir", output_dir, "folder that the runs are written to").common().shown_default("output/<model>");
  v("add_version", add_version, "each run gets its own folder vN-<time> in it");
}

void FolderOptions::saving_fields(OptionTable& v) {
  v("max_shard_size", max_shard_size, "largest file of weights in a checkpoint: 500MB, 5GB, ...");
  v("logging_dir", logging_dir, "folder of TensorBoard's files").shown_default("<run>/runs");
  v("report_to", report_to,
    str("tensorboard, ", join(tracker_names()), " (folders of offline runs for their clients), none"))
      .common();
  v("resume_from_checkpoint", resume_from_checkpoint,
    "checkpoint folder to go on from; auto, true or last: the newest whole one in --output_dir, and a new run where "
    "there is none")
      .common();
  v("resume_only_model", resume_only_model,
    "--resume_from_checkpoint: take the weights alone, not the optimizer's state");
  v("ignore_data_skip", ignore_data_skip,
    "begin the data anew instead of where it stopped; with --resume_only_model also at step 0");
  v("load_args", load_args,
    "take settings that are not given from the args.json of the checkpoint that is gone on from");
  v("load_data_args", load_data_args, "--load_args: take the data settings too");
}

void FolderOptions::resolve(OptionTable& v) {
  for (const std::string& name : tracker_names())
    if (std::find(report_to.begin(), report_to.end(), name) != report_to.end())
      v.notes.push_back(str("--report_to ", name, ": nothing is sent, the run is written to ",
                            tracker_kind(name).folder, "/ in its folder, for `", name, " sync`"));
  max_shard_bytes = parse_bytes(max_shard_size, "--max_shard_size");
}

void FolderOptions::check() const {
  std::vector<std::string> known = tracker_names();
  known.insert(known.end(), {"tensorboard", "none", "all"});
  for (const std::string& to : report_to)
    require(std::find(known.begin(), known.end(), to) != known.end(), Fault::Usage, "--report_to ", to,
            " is not available; possible: ", join(known), ". logging.jsonl is always written");
  require(!ignore_data_skip || !resume_from_checkpoint.empty(), Fault::Usage,
          "--ignore_data_skip belongs to --resume_from_checkpoint");
  require(!resume_only_model || !resume_from_checkpoint.empty(), Fault::Usage,
          "--resume_only_model belongs to --resume_from_checkpoint");
  std::error_code code;
  require(resume_from_checkpoint.empty() || std::filesystem::is_directory(resume_from_checkpoint, code), Fault::Usage,
          "--resume_from_checkpoint ", resume_from_checkpoint, " is not a folder here");
}

}  // namespace apus
