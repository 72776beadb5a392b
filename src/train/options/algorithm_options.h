// SPDX-License-Identifier: Apache-2.0
// What the command line knows of a training algorithm: its name, how --help presents it, and its own options. No tensor
// library: the algorithm itself is registered under the same name (train/algorithm.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "base/registry.h"
#include "models/spec/decoder_spec.h"
#include "models/spec/score_head.h"
#include "train/options/loop_options.h"

namespace apus {

// Another model that an algorithm works with, as its options name it.
struct OtherModel {
  std::string role;          // what it is to the algorithm: "teacher", "reward"
  std::string flag;          // the option that names it, for messages
  std::string* folder;       // in the options themselves: a hub's id there becomes a folder; null: that of --model
  std::string adapter = {};  // a LoRA adapter on it; empty: none
  Head head = Head::Vocab;
  // With the policy: its own parameters (or a LoRA adapter of its own), a place in the optimizer and in checkpoints. A
  // scalar head that its checkpoint lacks begins anew.
  bool trained = false;
  std::optional<double> learning_rate = {};  // of a trained one; absent: the policy's
};

// What settings of an algorithm ask for beyond what the algorithm itself does. Each is the flag
// that asks; "": none does.
struct AlgorithmNeeds {
  std::string whole_logits = {};  // the probabilities of all words at once
  std::string one_process = {};   // a figure over rows, kept where their losses are known
  std::string ahead = {};         // the head that guesses tokens ahead is trained, too
  std::string rows_apart = {};    // rows that one process has by itself
  std::string met_experts = {};   // which experts tokens met while they were drawn
  bool steady_rows = false;       // the engine's answers have the very bits of the trainer's (ops/steady_rows.h)
};

// The options of one algorithm, whatever struct they are: it describes itself with fields(OptionTable&), and may have
// check() const, for rules across its options (or check(loop, ranks), when they depend on how long the run is and on
// how many processes share it), brings_rows() const, when it may need no dataset, and uses_reference() const, when it
// can compare the policy with another model: the command then has the options that say with which
// (train/options/reference_options.h). other_models() names the further models that it works with. score_head() const
// says what a scalar head gives, where that is not one number; group_sharers(loop, ranks) const says how many
// neighbouring processes answer the same questions, where one does not make a whole group; take_from(config,
// folder) fills options that were not given from the checkpoint, and tells them; needs() const says what its settings
// ask for.
class AlgorithmOptions {
 public:
  template <class Options>
  static AlgorithmOptions of(Options values = {}) {
    AlgorithmOptions out;
    const auto held = std::make_shared<Options>(std::move(values));
    out.values_ = held, out.type_ = &typeid(Options);
    out.fields_ = [held](OptionTable& v) { held->fields(v); };
    out.check_ = [held](const LoopOptions& loop, int64_t ranks) {
      if constexpr (requires { held->check(); }) held->check();
      if constexpr (requires { held->check(loop, ranks); }) held->check(loop, ranks);
    };
    if constexpr (requires(const LoopOptions& loop) { held->group_sharers(loop, 1); })
      out.group_sharers_ = [held](const LoopOptions& loop, int64_t ranks) { return held->group_sharers(loop, ranks); };
    if constexpr (requires { held->brings_rows(); }) out.brings_rows_ = [held] { return held->brings_rows(); };
    if constexpr (requires { held->uses_reference(); }) out.uses_reference_ = [held] { return held->uses_reference(); };
    if constexpr (requires { held->other_models(); }) out.other_models_ = [held] { return held->other_models(); };
    if constexpr (requires { held->needs(); }) out.needs_ = [held] { return held->needs(); };
    if constexpr (requires { held->score_head(); }) out.score_head_ = [held] { return held->score_head(); };
    if constexpr (requires { held->take_from(Json(), std::string()); })
      out.take_from_ = [held](const Json& config, const std::string& dir) { return held->take_from(config, dir); };
    return out;
  }
  void fields(OptionTable& v) const { fields_(v); }
  void check(const LoopOptions& loop, int64_t ranks) const { check_(loop, ranks); }
  int64_t group_sharers(const LoopOptions& loop, int64_t ranks) const {
    return group_sharers_ ? group_sharers_(loop, ranks) : 1;
  }
  bool brings_rows() const { return brings_rows_ && brings_rows_(); }
  bool knows_reference() const { return static_cast<bool>(uses_reference_); }
  bool uses_reference() const { return knows_reference() && uses_reference_(); }
  std::vector<OtherModel> other_models() const { return other_models_ ? other_models_() : std::vector<OtherModel>(); }
  bool has_labels() const { return static_cast<bool>(score_head_); }
  ScoreHead score_head() const { return score_head_ ? score_head_() : ScoreHead{1, usual_problem(1)}; }
  AlgorithmNeeds needs() const { return needs_ ? needs_() : AlgorithmNeeds(); }
  bool asks_checkpoint() const { return static_cast<bool>(take_from_); }
  Json take_from(const Json& config, const std::string& folder) const { return take_from_(config, folder); }
  template <class Options>
  const Options& as() const {
    require(*type_ == typeid(Options), Fault::Bug, "an algorithm is given the options of another");
    return *static_cast<const Options*>(values_.get());
  }

 private:
  std::shared_ptr<void> values_;
  const std::type_info* type_ = nullptr;
  std::function<void(OptionTable&)> fields_;
  std::function<void(const LoopOptions&, int64_t)> check_;
  std::function<int64_t(const LoopOptions&, int64_t)> group_sharers_;
  std::function<bool()> uses_reference_, brings_rows_;
  std::function<std::vector<OtherModel>()> other_models_;
  std::function<AlgorithmNeeds()> needs_;
  std::function<ScoreHead()> score_head_;
  std::function<Json(const Json&, const std::string&)> take_from_;
};

// The option that chooses among a command's algorithms: rlhf_type; of sft task_type, which is causal_lm for sft itself.
inline std::string chooser_of(const std::string& command) { return command == "sft" ? "task_type" : command + "_type"; }

// `apus <name>` trains by it, or `apus rlhf --rlhf_type <name>`, or `apus sft --task_type <name>`.
struct AlgorithmInfo {
  std::string summary;
  std::string command = {};  // of several algorithms, among which an option chooses; empty: a command of its own
  bool usual = false;        // the one of its command where nothing chooses
  std::vector<std::string> examples;  // without the program's name
  Json defaults = Json::object();     // options of the command that have another default here
  bool asks_rows = false;             // rows are questions that the model answers; all their columns are kept
  bool may_answer = false;            // rows have answers, and the model may be asked for others
  bool splits_rows = false;           // --truncation_strategy split makes sense: rows are plain text
  bool compares_rows = true;          // what a reference is asked of are the rows, known before the run
  Head head = Head::Vocab;            // what the trained model gives: words, numbers, its hidden state
  bool names_tokens = false;          // it is told the tokenizer (RunSetting), as one that asks rows is
  bool reads_head = false;            // its loss reads rows of the head itself
  bool one_pass = true;               // the loss of a micro-batch comes from one pass over its rows
  bool shares_answers = false;        // processes that share the tokens of rows can share drawn answers, too
  int64_t row_texts = 1;              // texts of a row that go through the model together: 2 of a pair
  // What a cache of encoded rows is called that all algorithms of this word take; empty: samples are made anew.
  std::string cached_rows = {};
  std::function<AlgorithmOptions()> options = {};
  bool rolls_out() const { return asks_rows || may_answer; }
  // "apus NAME", "--rlhf_type NAME": how people know the algorithm of this name.
  std::string asked_as(const std::string& name) const {
    return command.empty() ? "apus " + name : str("--", chooser_of(command), " ", name);
  }
  // "NAME", "rlhf --rlhf_type NAME".
  std::string command_line(const std::string& name) const {
    return command.empty() ? name : str(command, " --", chooser_of(command), " ", name);
  }
};

template <class Options>
struct RegisterAlgorithmOptions {
  RegisterAlgorithmOptions(const std::string& name, AlgorithmInfo info) {
    info.options = [] { return AlgorithmOptions::of<Options>(); };
    Registry<AlgorithmInfo>::of().add(name, std::move(info));
  }
};

// The one that a command means where nothing chooses.
inline std::string usual_algorithm(const std::string& command) {
  for (const auto& [name, info] : Registry<AlgorithmInfo>::of().all())
    if (info.command == command && info.usual) return name;
  return command;
}

// The algorithms of a command, by name.
inline std::vector<std::string> algorithms_of(const std::string& command) {
  std::vector<std::string> names;
  for (const auto& [name, info] : Registry<AlgorithmInfo>::of().all())
    if (info.command == command) names.push_back(name);
  return names;
}

// Whose samples a cache of encoded rows holds.
struct CachedRows {
  std::string algorithm;
  AlgorithmOptions own;
};
// What its encoded rows depend on besides the encoder. Of conversations and plain texts nothing.
inline Json cached_as(const AlgorithmInfo& info, const AlgorithmOptions& options) {
  if (info.cached_rows.empty() || info.cached_rows == "texts") return Json::object();
  Json as = {{"rows", info.cached_rows}};
  if (options.has_labels()) as["labels"] = {options.score_head().labels, options.score_head().problem_type};
  return as;
}

inline const AlgorithmInfo& algorithm_info(const std::string& name) {
  const AlgorithmInfo* info = Registry<AlgorithmInfo>::of().find(name);
  require(info, Fault::Bug, "no training algorithm is named '", name, "'");
  return *info;
}

}  // namespace apus
