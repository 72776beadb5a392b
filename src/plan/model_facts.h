// SPDX-License-Identifier: Apache-2.0
// A model as numbers, from its config.json alone: every parameter with its shape, under the names of the checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/spec/decoder_spec.h"
#include "models/spec/seeing_spec.h"
#include "nn/activation.h"
#include "nn/state_form.h"

namespace apus {

struct ParamFacts {
  std::string name;
  std::vector<int64_t> shape;
  // The weight of a linear layer, which can have LoRA factors.
  bool linear = false;
  // All experts of a layer in one.
  bool stacked = false;
  // Of what sees or hears, which each process holds whole.
  bool tower = false;
  // Stacked experts that adapters can be on: which matrices of one expert the parameter holds, by their names.
  std::vector<std::string> pieces = {};
  int64_t numel() const;
  std::string module() const { return name.substr(0, name.rfind('.')); }
};

struct ModelFacts {
  // dtype: config.json's, "bfloat16"; may be empty.
  std::string type, dtype;
  // The beginning of the names of all but head and towers.
  std::string backbone = "model";
  // Of the embedding, and the beginning of the names of all layers.
  std::string embedding = "model.embed_tokens", layer = "model.layers.";
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, positions = 0;
  // ModelShape::latent
  int64_t latent = 0;
  // ModelShape::cached
  std::vector<ModelShape::Cached> cached;
  TokenSharing sharing;
  // All layers read one table of distances (AttentionForm::by_distance).
  bool by_distance = false;
  // DecoderSpec::hands_on_more()
  bool hands_on_more = false;
  std::string takes_no_prompt = "";  // DecoderSpec
  // Attention looks at pooled keys too.
  bool pooled = false;
  // ModelShape::position_numbers
  int64_t position_numbers = 0;
  // Of the layers those with keys and values of every token, and those with a state, of so many numbers a sequence.
  int64_t token_layers = 0, state_layers = 0, state_numbers = 0;
  std::vector<Keeps> keeps;
  // Of a layer with a state in training, f32 numbers a token: what it keeps, and what its gradient takes besides.
  double state_kept = 0, state_again = 0;
  bool tied = false, qk_norm = false;
  // What of it cannot be cut (models/spec/cutting.h); empty: its matrices can be shared out.
  std::string uncut;
  // It gives no words.
  bool encoder = false;
  // The checkpoint's own matrices are held in codes.
  bool quantised = false;
  Activation act = Activation::Silu;
  // Of the layers that are mixtures.
  int64_t experts = 0, per_token = 0, expert_ffn = 0, shared_ffn = 0;
  // Per layer: a mixture.
  std::vector<bool> sparse;
  // ModelShape::seen_layers
  int64_t seen_layers = 0;
  // The layer like which the head is that guesses tokens ahead; -1: such checkpoints have none.
  int64_t guess_like = -1;
  // Null: it reads text only.
  std::shared_ptr<const SeeingSpec> seeing = nullptr;
  // In the model's own order, tied ones once.
  std::vector<ParamFacts> params;

  int64_t parameters() const;
  // Those that one token meets.
  int64_t active_parameters() const;
  // Of all products that one token meets, the head included.
  int64_t matrix_elements() const;
  std::vector<std::string> linear_modules() const;
};

// From the same description as the model's modules; Fault::Model for all that describe_model refuses.
ModelFacts model_facts(const Json& config);
// With the head that guesses tokens ahead, as one more layer.
ModelFacts with_guess_head(ModelFacts model);

}  // namespace apus
