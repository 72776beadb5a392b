// SPDX-License-Identifier: Apache-2.0
// What goes together. A run is described by what matters for that, and the rules tell why it cannot be had: an
// algorithm says what it asks for (train/options/algorithm_options.h), a family follows from its description
// (models/spec), a format from its files (quant). Nobody else keeps a list of what is possible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/model_facts.h"
#include "train/options/algorithm_options.h"

namespace apus {

struct Combination {
  // Null: nothing is trained.
  const AlgorithmInfo* algorithm = nullptr;
  // How it is asked for: "apus sft", "--rlhf_type NAME".
  std::string asked = "apus infer";
  AlgorithmNeeds needs = {};

  // Null: its config.json is not at hand, and rules about it wait.
  const ModelFacts* model = nullptr;
  std::string model_name = "the model";
  // Of answering: the model gives words, not labels, vectors or scores.
  bool gives_words = true;

  // Processes that share out matrices, experts, layers, the tokens of rows.
  int64_t tensor = 1, experts = 1, stages = 1, tokens = 1;
  bool residual = false;  // --sequence_parallel: the former also share out the tokens between these
  // --deepspeed, --fsdp: 1 the optimizer's state, 2 also gradients, 3 also weights; 0: nothing, or one process.
  int zero = 0;
  // Of 3: groups of processes hold the same.
  bool groups = false;

  // --tuner_type
  std::string tuner = "full";
  bool dora = false;
  // --quant_method, or the checkpoint's own codes.
  bool quantised = false;
  // The flag of an optimizer that looks at whole matrices; "": it does not.
  std::string whole_matrices = "";
  // That of one which means an average of the weights that it trains; "": it does not.
  std::string averaging = "";
  // That of one which is told of attention's logits; "": it is not.
  std::string watches_logits = "";
  bool some_layers = false;     // --lisa_activated_layers
  bool generates = false;       // --predict_with_generate
  bool broadcasts = false;      // --broadcast_weights
  bool asks_reference = false;  // --precompute_ref_log_probs
  bool noise = false;           // --neftune_noise_alpha
  bool benchmarks = false;      // --eval_dataset
  bool updates_early = false;   // --update_in_backward
  bool fp8 = false;             // --fp8_format
  bool two_trained = false;     // the algorithm trains a second model

  bool shares_parts() const { return tensor * experts * stages > 1; }
};

// One sentence each: what does not go with what, why, and what to do. Empty: it can be had.
std::vector<std::string> refusals(const Combination& wanted);
// Fault::Usage with all of them.
void require_possible(const Combination& wanted);

// What is combined (an algorithm, a kind of weights, a family) with one way to share a run out over two processes.
struct Ability {
  std::string what, way;  // their titles
  std::string what_flags, way_flags;
  std::string why_not;  // empty: it can be had
};
// `model`: what they are about, or null: what holds for any model that can be cut.
std::vector<Ability> algorithm_abilities(const ModelFacts* model);
std::vector<Ability> weight_abilities(const ModelFacts* model);  // of apus sft
std::vector<Ability> family_abilities();                         // of apus sft, by a known shape of each family

// For people: a row for each `what`, a column for each way; reasons by number, below, in which "this" is the row and
// "the flag" the column's.
std::string abilities_text(const std::string& title, const std::vector<Ability>& all);

}  // namespace apus
