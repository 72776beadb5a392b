// SPDX-License-Identifier: Apache-2.0
// Kinds of adapters besides LoRA: their settings, and PEFT's words for them in adapter_config.json. No tensor library.
//
//   kind      peft_type     parameters of a layer [in, out]
//   lora      LORA          lora_A.weight [r, in], lora_B.weight [out, r], ...
//   adalora   ADALORA       lora_A [r, in], lora_E [r, 1], lora_B [out, r]
//   bone      MISS, BONE    miss_block [r, out] (BONE: bone_block)
//   boft      BOFT          boft_R [factors, in / block, block, block], boft_s [out, 1]
//   ia3       IA3           ia3_l [out, 1], of feed-forwards [1, in]
//   fourierft FOURIERFT     fourierft_spectrum [n_frequency]
//   vera      VERA          vera_lambda_b [out], vera_lambda_d [r]; of all layers together base_model.vera_A [r, in]
//                           and base_model.vera_B [out, r]
//   ln_tuning LN_TUNING     ln_tuning_layers.weight and .bias: a norm's own, trained whole
//   prompt_tuning PROMPT_TUNING   of the embedding: prompt_embeddings [words, hidden], words that stand before every
//   text adapter   none          linear1 and linear2, [r, out] and [out, r], with biases
//
// PEFT has no adapters behind layers: these are ms-swift's files, which stand in a folder default/ of the checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

// LoraConfig::r is the rank that it begins with.
struct AdaLoraSettings {
  int64_t target_rank = 8;  // on average, at the end
  // Updates before ranks are taken away, after that is done, and between two times.
  int64_t first_steps = 0, last_steps = 0, every = 1;
  double beta1 = 0.85, beta2 = 0.85;  // decays of importance and of its uncertainty
  double orthogonal = 0.5;            // weight of the penalty on factors that are not orthogonal
  int64_t total_steps = 0;            // of the run; 0: not known yet
};

struct BoftSettings {
  int64_t block_size = 4, block_num = 0;  // one of them is 0 and follows from the other
  int64_t factors = 1;                    // of the butterfly
};

struct FourierSettings {
  int64_t frequencies = 2000, seed = 777;  // of the places of these numbers
  double scaling = 300;
};

struct VeraSettings {
  int64_t key = 0;       // of the random numbers of its matrices
  double first_d = 0.1;  // d begins with it
  bool saves = true;     // the matrices are in the file
};

// A trained prompt. PEFT's files also hold what the model is like.
struct PromptSettings {
  int64_t words = 20;
  std::string text;               // what it begins as, where LoraConfig::init is TEXT
  std::vector<int32_t> text_ids;  // its tokens; not in the file
  int64_t hidden = 0, heads = 0, layers = 0;
};

// How LoRA-GA makes first factors of a gradient's singular vectors u, v: which of them, and how long.
struct GradientFactors {
  std::string direction = "ArB2r";  // ArBr, A2rBr, ArB2r
  std::string scale = "stable";     // gd, unit, stable, weightS
  double stable_gamma = 16;
};

struct LoraConfig;

inline constexpr int64_t kMostPromptWords = 65536;

// What a word of --tuner_type that means an adapter allows.
struct AdapterAbilities {
  bool cut = true;          // processes can share out its factors as they do the weights
  bool answers = true;      // the engine can draw answers with it
  bool slices = true;       // a process can update rows of a factor by themselves
  bool merges = true;       // its change can be folded into the weights
  bool own_words = false;   // it puts words of its own before every text
  bool whole_rows = false;  // attention is changed while it is trained, and sees whole rows and all heads
};
AdapterAbilities adapter_abilities(const std::string& tuner_type);

// Kinds as files have them, "lora" first.
const std::vector<std::string>& adapter_kinds();
bool is_adapter_kind(const std::string& word);
std::vector<std::string> adapter_words();  // all that --tuner_type takes for one
// "LoRA", "AdaLoRA", ...; what it is called in texts.
std::string adapter_title(const LoraConfig& config);
// The beginning of its parameters' names in a file: "lora_".
std::string adapter_prefix(const LoraConfig& config);
const std::vector<std::string>& bottleneck_acts();  // what may stand between the matrices of kind adapter
// How many numbers it trains for this layer, [out, in].
int64_t change_elements(const LoraConfig& config, const std::string& module, int64_t in, int64_t out);
// Numbers in a block of BOFT; Fault::Usage where the inputs of this layer cannot be cut so.
int64_t boft_block(const BoftSettings& boft, const std::string& module, int64_t in);

// kind adapter: the feed-forwards of all layers, as an expression; Fault::Usage where a layer has none or a mixture.
std::string feed_forward_expression(const std::vector<std::string>& linear_modules);
// kind ia3: the layers whose inputs are scaled, those of feed-forwards; "": there are none by a known name.
std::string scaled_inputs_expression(const std::vector<std::string>& linear_modules);
// Which of these modules are norms: the last parts of their names, or the whole names.
std::vector<std::string> norm_names(const std::vector<std::string>& modules, bool whole = false);
// Whether a linear layer is the last one of a feed-forward that the expression means.
bool ends_feed_forward(const std::string& module, const std::string& expression);

// Fault::Model for what is not available.
void read_adapter_kind(const Json& json, const std::string& where, LoraConfig& config);
// What PEFT writes for this kind, of what it writes for LoRA.
Json kind_config_json(Json lora, const LoraConfig& config);

}  // namespace apus
