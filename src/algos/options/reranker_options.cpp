// SPDX-License-Identifier: Apache-2.0
#include "algos/options/reranker_options.h"

#include "algos/options/environment.h"
#include "train/options/algorithm_options.h"

namespace apus {

RerankerOptions::RerankerOptions()
    : temperature(from_environment("LISTWISE_RERANKER_TEMPERATURE", 1.0)),
      least_list(from_environment("LISTWISE_RERANKER_MIN_GROUP_SIZE", int64_t{2})),
      most_positives(from_environment("MAX_POSITIVE_SAMPLES", int64_t{1})),
      most_negatives(from_environment("MAX_NEGATIVE_SAMPLES", int64_t{7})) {}

void RerankerOptions::fields(OptionTable& v) {
  v.group("Loss");
  v("loss_type", loss_type,
    "pointwise_reranker: does a document answer the query, yes or no; listwise_reranker: which document of a list "
    "does. "
    "(The other names are old ones for the same)")
      .common()
      .choices({"pointwise_reranker", "listwise_reranker", "reranker", "generative_reranker",
                "listwise_generative_reranker"})
      .noted();
  v("listwise_temperature", temperature, "scores of a list are divided by it (LISTWISE_RERANKER_TEMPERATURE)")
      .above(0)
      .noted();
  v("listwise_min_group_size", least_list, "shorter lists are left out (LISTWISE_RERANKER_MIN_GROUP_SIZE)")
      .at_least(2)
      .noted();
  v("max_positive_samples", most_positives,
    "documents of a row that answer the query, each with a list of its own (MAX_POSITIVE_SAMPLES)")
      .at_least(1)
      .must_match();
  v("max_negative_samples", most_negatives,
    "documents that do not answer the query, in each list of a row (MAX_NEGATIVE_SAMPLES)")
      .at_least(1)
      .must_match();
}

GenerativeRerankerOptions::GenerativeRerankerOptions() {
  words.yes = from_environment("GENERATIVE_RERANKER_POSITIVE_TOKEN", words.yes.c_str());
  words.no = from_environment("GENERATIVE_RERANKER_NEGATIVE_TOKEN", words.no.c_str());
}

void GenerativeRerankerOptions::fields(OptionTable& v) {
  RerankerOptions::fields(v);
  words.fields(v);
}

namespace {

const RegisterAlgorithmOptions<RerankerOptions> reranker(
    "reranker", {.summary = "a score for a query and a document, from a head of its own",
                 .command = "sft",
                 .examples = {"sft --task_type reranker --model DIR --dataset ranked.jsonl"},
                 .head = Head::Scalar,
                 .row_texts = 2,
                 .cached_rows = "ranked"});
const RegisterAlgorithmOptions<GenerativeRerankerOptions> generative(
    "generative_reranker", {.summary = "the same by the model's own words: how much likelier is yes than no",
                            .command = "sft",
                            .examples = {"sft --task_type generative_reranker --model DIR --dataset ranked.jsonl"},
                            .names_tokens = true,
                            .reads_head = true,
                            .row_texts = 2,
                            .cached_rows = "ranked by words"});

}  // namespace
}  // namespace apus
