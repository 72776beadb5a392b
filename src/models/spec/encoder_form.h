// SPDX-License-Identifier: Apache-2.0
// What an encoder has beside a decoder's parts: it reads a text as a whole, every token seeing those before and behind
// it, and gives vectors, labels and scores instead of words. Computed by models/encoder_model.h; no tensor library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/pooling_kind.h"
#include "nn/activation.h"

namespace apus {

// What stands between the states of a text and its labels. Names are those of the whole model in the checkpoint.
struct EncoderHead {
  Pooling reads = Pooling::First;
  // act(dense x), then a norm; "": there is none.
  std::string dense = "", norm = "";
  bool dense_bias = true;
  Activation act = Activation::Tanh;
  // One number for each label, with a bias.
  std::string out = "classifier";
  // An adapter brings these modules whole.
  std::vector<std::string> saved = {"classifier"};
};

struct EncoderForm {
  // A table that says which of two texts a token is of, whose row is added to its embedding; "": there is none.
  std::string types_name = "";
  int64_t types = 0;
  // Its tokenizer tells the model which of two texts a token is of. Else all are of the first.
  bool tells_apart = false;
  // The table of AttentionForm::by_distance.
  std::string distances_name = "";
  EncoderHead head = {};
  // A head that labels each token has the layers before the last one too; else it is the last one alone.
  bool token_head_is_whole = false;
  // Beginnings of the names of tensors that no task here reads: heads for masked words, and a pooler that only a head
  // of labels reads.
  std::vector<std::string> unread = {};
};

}  // namespace apus
