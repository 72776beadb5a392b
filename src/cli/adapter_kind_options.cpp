// SPDX-License-Identifier: Apache-2.0
#include "cli/adapter_kind_options.h"

#include <algorithm>

#include "base/error.h"
#include "cli/train.h"

namespace apus {

void AdapterKindOptions::fields(OptionTable& v) {
  v("adalora_init_r", adalora_init_r, "adalora: rank that every layer begins with").at_least(1).must_match();
  v("adalora_target_r", adalora.target_rank, "adalora: rank that is left on average").at_least(1).must_match();
  v("adalora_tinit", adalora.first_steps, "adalora: updates before ranks are taken away").at_least(0).must_match();
  v("adalora_tfinal", adalora.last_steps, "adalora: updates after the last ranks were taken away")
      .at_least(0)
      .must_match();
  v("adalora_deltaT", adalora.every, "adalora: ranks are taken away every so many updates").at_least(1).must_match();
  v("adalora_beta1", adalora.beta1, "adalora: decay of the importance of ranks")
      .above(0)
      .at_most(0.999999)
      .must_match();
  v("adalora_beta2", adalora.beta2, "adalora: decay of the uncertainty of that importance")
      .above(0)
      .at_most(0.999999)
      .must_match();
  v("adalora_orth_reg_weight", adalora.orthogonal, "adalora: weight of the penalty on factors that are not orthogonal")
      .at_least(0)
      .must_match();
  v("bone_rank", bone_rank, "bone: inputs of a shard")
      .alias("reft_rank", "what ms-swift takes for the rank of bone")
      .at_least(1)
      .must_match();
  v("boft_block_size", boft.block_size, "boft: inputs that are rotated together; 0: by --boft_block_num")
      .at_least(0)
      .must_match();
  v("boft_block_num", boft.block_num, "boft: blocks that the inputs are divided into, instead of --boft_block_size")
      .at_least(0)
      .must_match();
  v("boft_n_butterfly_factor", boft.factors, "boft: rotations one after the other, between which blocks are mixed")
      .at_least(1)
      .at_most(16)
      .must_match();
  v("fourier_n_frequency", fourier.frequencies, "fourierft: numbers that are trained of each layer")
      .at_least(1)
      .must_match();
  v("fourier_scaling", fourier.scaling, "fourierft: factor of the change").must_match();
  v("vera_rank", vera_rank, "vera: rank of the random matrices that all layers share").at_least(1).must_match();
  v("vera_projection_prng_key", vera.key, "vera: seed of these matrices").at_least(0).must_match();
  v("vera_dropout", vera_dropout, "vera: share of inputs dropped before the matrices")
      .at_least(0)
      .at_most(0.99)
      .noted();
  v("vera_d_initial", vera.first_d, "vera: what the factors between the two matrices begin with").must_match();
  v("adapter_length", adapter_length, "adapter: width of the bottleneck behind each feed-forward")
      .at_least(1)
      .must_match();
  v("adapter_act", adapter_act, "adapter: the function between its two layers").choices(bottleneck_acts()).must_match();
  v("num_virtual_tokens", num_virtual_tokens, "prompt_tuning: words that stand before every text")
      .at_least(1)
      .at_most(kMostPromptWords)
      .must_match();
  v("prompt_tuning_init", prompt_tuning_init,
    "prompt_tuning: what they begin as: words of the vocabulary, drawn; those of a text; normal numbers")
      .choices({"sample_vocab", "text", "random"})
      .must_match();
  v("prompt_tuning_init_text", prompt_tuning_init_text,
    "prompt_tuning: the text, which is said again until its words are enough, or cut")
      .must_match();
  v.refuse({"boft_dropout"}, "blocks are never left out", "0");
}

bool AdapterKindOptions::reads(const std::string& option, const std::string& tuner_type) const {
  if (tuner_type == "longlora") return reads(option, "lora");
  if (tuner_type == "llamapro" || option.starts_with("llamapro_"))
    return tuner_type == "llamapro" && option.starts_with("llamapro_");
  if (option == "lora_rank" || option.starts_with("lora_ga_")) return tuner_type == "lora";
  if (option == "num_virtual_tokens") return tuner_type == "prompt_tuning";
  if (option.starts_with("fourier_")) return tuner_type == "fourierft";
  const bool layers = option.starts_with("target_") || option == "init_weights";
  if (layers && tuner_type == "adapter") return false;  // all feed-forwards
  if (layers && tuner_type == "prompt_tuning") return false;
  if (option == "lora_alpha" || option == "lora_dropout") return tuner_type == "lora" || tuner_type == "adalora";
  return std::none_of(adapter_kinds().begin() + 1, adapter_kinds().end(),
                      [&](const std::string& kind) { return kind != tuner_type && option.starts_with(kind + "_"); });
}

void AdapterKindOptions::note_others(OptionTable& v, const std::string& tuner_type) const {
  for (const auto& option : v.options())
    if (option->given && option->refusal.empty() && !reads(option->name, tuner_type))
      v.notes.push_back(str("--", option->name, " has no effect with --tuner_type ", tuner_type));
}

void AdapterKindOptions::describe(const std::string& tuner_type, LoraConfig& c) const {
  c.kind = tuner_type == "longlora" ? "lora" : tuner_type, c.adalora = adalora, c.boft = boft, c.fourier = fourier;
  c.vera = vera;
  if (c.kind == "adalora") c.r = adalora_init_r;
  if (c.kind == "bone") c.r = bone_rank;
  if (c.kind == "vera") c.r = vera_rank, c.dropout = vera_dropout;
  if (c.kind == "adapter") {
    c.r = adapter_length, c.act = adapter_act;
    c.target_modules.clear(), c.target_regex.clear();  // follows from the model
    require(c.modules_to_save.empty() && c.bias == "none", Fault::Usage,
            "--tuner_type adapter trains bottlenecks alone, as its files hold nothing else: leave out "
            "--modules_to_save and --lora_bias");
  }
  if (c.kind == "prompt_tuning") {
    const bool text = prompt_tuning_init == "text";
    c.prompt.words = num_virtual_tokens, c.prompt.text = prompt_tuning_init_text;
    c.init = text ? "TEXT" : prompt_tuning_init == "random" ? "RANDOM" : "SAMPLE_VOCAB";
    c.target_modules.clear(), c.target_regex.clear();
    require(c.modules_to_save.empty() && c.bias == "none" && c.token_rows.empty(), Fault::Usage,
            "--tuner_type prompt_tuning trains a prompt alone, as its files hold nothing else: leave out "
            "--modules_to_save, --lora_bias and --trainable_token_indices");
    require(text == !prompt_tuning_init_text.empty(), Fault::Usage,
            "--prompt_tuning_init text and --prompt_tuning_init_text go together: give both or neither");
  }
  require(c.kind != "ln_tuning" || c.bias == "none", Fault::Usage,
          "--tuner_type ln_tuning trains norms alone: leave out --lora_bias");
  require(c.kind != "boft" || (boft.block_size > 0) != (boft.block_num > 0), Fault::Usage,
          "--boft_block_size and --boft_block_num: one of them must be 0, as it follows from the other");
}

}  // namespace apus
