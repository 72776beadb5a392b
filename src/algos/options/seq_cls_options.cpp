// SPDX-License-Identifier: Apache-2.0
#include "algos/options/seq_cls_options.h"

#include "train/options/algorithm_options.h"

namespace apus {

void SeqClsOptions::fields(OptionTable& v) {
  v.group("Labels");
  v("num_labels", num_labels, "how many labels there are, or numbers")
      .common()
      .at_least(1)
      .at_most(1e6)
      .shown_default("of a checkpoint that is a classifier: as it has")
      .must_match()
      .restored("model");
  v("problem_type", problem_type,
    "what the column `label` holds: the number of one label, a list of all that hold, or numbers to come near to")
      .common()
      .choices({"single_label_classification", "multi_label_classification", "regression"})
      .shown_default("regression with one label, else single_label_classification")
      .must_match()
      .restored("model");
  v.refuse({"loss_type"},
           "--problem_type decides: cross-entropy, binary cross-entropy of each label, or squared error");
}

Json SeqClsOptions::take_from(const Json& config, const std::string& /*folder*/) {
  const std::optional<ScoreHead> head = score_head_of(config);
  if (head && !problem_type && (!num_labels || *num_labels == head->labels)) problem_type = head->problem_type;
  if (head && !num_labels) num_labels = head->labels;
  require(num_labels.has_value(), Fault::Usage,
          "--num_labels is needed: how many labels the rows have (1 for one number); the checkpoint is no classifier "
          "that would say it");
  return {{"num_labels", *num_labels}, {"problem_type", score_head().problem_type}};
}

ScoreHead SeqClsOptions::score_head() const {
  return {num_labels.value_or(1), problem_type.value_or(usual_problem(num_labels.value_or(1)))};
}

namespace {

const RegisterAlgorithmOptions<SeqClsOptions> seq_cls(
    "seq_cls", {.summary = "a classifier: labels or numbers for a text",
                .command = "sft",
                .examples = {"sft --task_type seq_cls --num_labels 3 --model DIR --dataset labelled.jsonl"},
                .head = Head::Scalar,
                .cached_rows = "classified"});

}  // namespace
}  // namespace apus
