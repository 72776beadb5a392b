// SPDX-License-Identifier: Apache-2.0
#include "algos/options/sft_options.h"

#include "base/error.h"
#include "train/options/algorithm_options.h"

namespace apus {

void SftOptions::fields(OptionTable& v) {
  v.group("Loss");
  v("label_smoothing_factor", label_smoothing_factor, "share of each target spread over the vocabulary")
      .at_least(0)
      .at_most(0.999)
      .noted();
  v("enable_dft_loss", enable_dft_loss, "weigh each token by its own probability").noted();
  v("enable_asft_loss", enable_asft_loss,
    "weigh each token by its own probability, and hold the model to a reference: add asft_alpha times KL(reference | "
    "model)")
      .noted();
  v("asft_alpha", asft_alpha, "--enable_asft_loss: how strongly the model is held to the reference")
      .at_least(0)
      .noted();
  v("enable_eaft_loss", enable_eaft_loss,
    "weigh each token by how uncertain the model is of it: its entropy over the 20 likeliest tokens, by 3")
      .noted();
  v("eaft_alpha", eaft_alpha, "--enable_eaft_loss: the power of the entropy's weight").above(0).noted();
  v("enable_channel_loss", enable_channel_loss, "log the loss of each row's channel");
  v("mtp_num_layers", mtp_num_layers,
    "1: train the head that guesses the token after the next, too, with which checkpoints of some families come")
      .at_least(0)
      .at_most(1)
      .must_match();
  v("mtp_loss_scaling_factor", mtp_loss_scaling_factor, "--mtp_num_layers: how much the head's loss counts")
      .at_least(0)
      .noted();
  v("acc_strategy", acc_strategy, "token_acc counts right tokens, or whole sequences that are right")
      .choices({"token", "seq"});
  v.refuse({"loss_type"}, "this command trains by cross-entropy; apus rlhf has other losses");
}

void SftOptions::check() const {
  require(enable_dft_loss + enable_asft_loss + enable_eaft_loss <= 1, Fault::Usage,
          "--enable_dft_loss, --enable_asft_loss and --enable_eaft_loss are three losses: give one of them");
}

namespace {

const RegisterAlgorithmOptions<SftOptions> sft(
    "sft",
    {.summary = "fine-tune a model on conversations: LoRA or all weights",
     .examples = {"sft --model DIR --dataset rows.jsonl --output_dir out",
                  "sft --model DIR --dataset rows.jsonl --tuner_type full --learning_rate 1e-5 --num_train_epochs 1",
                  "sft --model DIR --dataset rows.jsonl --resume_from_checkpoint out/v0-.../checkpoint-500"},
     .compares_rows = false,
     .cached_rows = "texts"});

// Plain text, of which every token is learnt.
const RegisterAlgorithmOptions<SftOptions> pt(
    "pt", {.summary = "go on pre-training a model on plain text",
           .examples = {"pt --model DIR --dataset texts.jsonl --packing true --max_length 2048 --tuner_type full "
                        "--output_dir out"},
           .defaults = {{"use_chat_template", false}, {"loss_scale", "all"}},
           .splits_rows = true,
           .compares_rows = false,
           .cached_rows = "texts"});

}  // namespace
}  // namespace apus
