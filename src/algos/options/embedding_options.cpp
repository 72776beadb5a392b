// SPDX-License-Identifier: Apache-2.0
#include "algos/options/embedding_options.h"

#include "algos/options/environment.h"
#include "checkpoint/vector_files.h"
#include "models/spec/family.h"
#include "train/options/algorithm_options.h"

namespace apus {

EmbeddingOptions::EmbeddingOptions() {
  infonce.temperature = from_environment("INFONCE_TEMPERATURE", infonce.temperature);
  infonce.use_batch = from_environment("INFONCE_USE_BATCH", infonce.use_batch);
  infonce.mask_fake_negative = from_environment("INFONCE_MASK_FAKE_NEGATIVE", infonce.mask_fake_negative);
  infonce.fake_neg_margin = from_environment("INFONCE_FAKE_NEG_MARGIN", infonce.fake_neg_margin);
  infonce.include_qq = from_environment("INFONCE_INCLUDE_QQ", infonce.include_qq);
  infonce.include_dd = from_environment("INFONCE_INCLUDE_DD", infonce.include_dd);
  if (const int64_t count = from_environment("INFONCE_HARD_NEGATIVES", int64_t{0}); count > 0) hard_negatives = count;
}

void EmbeddingOptions::fields(OptionTable& v) {
  v.group("Loss");
  v("loss_type", loss_type,
    "infonce: find the query's document among all of the batch; cosine_similarity: a pair's cosine is its label; "
    "contrastive, online_contrastive: pairs with label 1 near, with label 0 apart")
      .common()
      .choices({"infonce", "cosine_similarity", "contrastive", "online_contrastive"})
      .noted();
  v("pooling", pooling,
    "a text's vector: the hidden state of its last token, of its first (cls), or made of all: their mean, ...")
      .common()
      .choices(pooling_names())
      .shown_default("what the checkpoint says; without a word of it mean for encoders, else last")
      .must_match()
      .restored("model");
  v("infonce_temperature", infonce.temperature, "similarities are divided by it (INFONCE_TEMPERATURE)")
      .above(0)
      .noted();
  v("infonce_use_batch", infonce.use_batch,
    "candidates are the documents of the whole micro-batch on all ranks; false: the row's own (INFONCE_USE_BATCH)")
      .noted();
  v("infonce_hard_negatives", hard_negatives,
    "negatives of each row: the first so many, repeated at random where there are fewer (INFONCE_HARD_NEGATIVES)")
      .at_least(1)
      .shown_default("all it has")
      .must_match();
  v("infonce_mask_fake_negative", infonce.mask_fake_negative,
    "leave out candidates that are liker than the right one by --infonce_fake_neg_margin "
    "(INFONCE_MASK_FAKE_NEGATIVE)")
      .noted();
  v("infonce_fake_neg_margin", infonce.fake_neg_margin,
    "infonce_mask_fake_negative: how much more similar than the right one a document must be to count as such "
    "(INFONCE_FAKE_NEG_MARGIN)")
      .at_least(0)
      .noted();
  v("infonce_include_qq", infonce.include_qq, "the other queries are candidates too (INFONCE_INCLUDE_QQ)").noted();
  v("infonce_include_dd", infonce.include_dd,
    "infonce: compare all documents with the right one, too (INFONCE_INCLUDE_DD)")
      .noted();
}

void EmbeddingOptions::check() const {
  require(infonce.use_batch || !(infonce.mask_fake_negative || infonce.include_qq || infonce.include_dd), Fault::Usage,
          "--infonce_use_batch false compares a query with its own row's documents only: no "
          "--infonce_mask_fake_negative, --infonce_include_qq, --infonce_include_dd");
}

Json EmbeddingOptions::take_from(const Json& config, const std::string& folder) {
  const auto form = read_vector_files(folder);
  require(!form || form->layers.empty(), Fault::Model, folder,
          ": its vectors go through a further layer (Dense of modules.json), which is not trained here; without "
          "modules.json the model's own vectors are trained");
  if (!pooling) pooling = pooling_name(form ? form->pooling : is_encoder(config) ? Pooling::Mean : Pooling::Last);
  return {{"pooling", *pooling}};
}

namespace {

const RegisterAlgorithmOptions<EmbeddingOptions> embedding(
    "embedding", {.summary = "vectors that stand for texts: alike where the texts belong together",
                  .command = "sft",
                  .examples = {"sft --task_type embedding --model DIR --dataset pairs.jsonl "
                               "--per_device_train_batch_size 32"},
                  .defaults = {{"use_chat_template", false}},
                  .head = Head::None,
                  .row_texts = 2});

}  // namespace
}  // namespace apus
