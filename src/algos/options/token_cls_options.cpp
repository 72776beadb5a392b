// SPDX-License-Identifier: Apache-2.0
#include "algos/options/token_cls_options.h"

#include "train/options/algorithm_options.h"

namespace apus {

void TokenClsOptions::fields(OptionTable& v) {
  v.group("Labels");
  v("num_labels", num_labels, "how many labels there are")
      .common()
      .at_least(1)
      .at_most(1e6)
      .shown_default("of a checkpoint that labels tokens: as it has")
      .must_match()
      .restored("model");
  v.refuse({"problem_type"}, "a word has one label of several");
  v.refuse({"loss_type"}, "labels of words are learnt by cross-entropy");
}

Json TokenClsOptions::take_from(const Json& config, const std::string& /*folder*/) {
  const std::optional<ScoreHead> head = score_head_of(config);
  if (head && head->each_token && !num_labels) num_labels = head->labels;
  require(num_labels.has_value(), Fault::Usage,
          "--num_labels is needed: how many labels the rows have; the checkpoint labels no tokens, which would say it");
  return {{"num_labels", *num_labels}};
}

namespace {

const RegisterAlgorithmOptions<TokenClsOptions> token_cls(
    "token_cls", {.summary = "labels for the words of a text: names, parts of speech",
                  .command = "sft",
                  .examples = {"sft --task_type token_cls --num_labels 9 --model DIR --dataset conll.jsonl"},
                  .head = Head::Scalar,
                  .cached_rows = "words"});

}  // namespace
}  // namespace apus
