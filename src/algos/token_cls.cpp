// SPDX-License-Identifier: Apache-2.0
#include "algos/token_cls.h"

#include <ATen/TensorOperators.h>

#include "algos/label_losses.h"
#include "algos/pairs.h"
#include "data/rows/documents.h"
#include "models/pooling.h"
#include "text/word_places.h"

namespace apus {
namespace {

constexpr const char* kWordLabel = "label";
constexpr float kUnlabelled = -1;

std::vector<int64_t> labels_of(const Row& row, size_t words, int64_t count) {
  const auto bad = [&](const std::string& why) { throw RowError(row.origin, kWordLabel, why); };
  const auto found = row.value.find(kWordLabel);
  if (found == row.value.end() || !found->is_array()) bad("a list of one label for each word is wanted: [0, 3, 0]");
  if (found->size() != words) bad(str("there are ", found->size(), " labels and ", words, " words, which blanks part"));
  std::vector<int64_t> out;
  for (const Json& each : *found) {
    const int64_t label = each.is_number_integer() ? each.get<int64_t>() : -2;
    if (label != -100 && (label < 0 || label >= count))
      bad(str(json_text(each).substr(0, 40), " is no label: they are the whole numbers from 0 to ", count - 1,
              " (--num_labels ", count, "), and -100 for a word that is not learnt from"));
    out.push_back(label);
  }
  return out;
}

// Where labelled tokens stand in the batch; empty: nowhere.
at::Tensor labelled_places(const Batch& batch) {
  const auto column = batch.token_columns.find(kWordLabel);
  return column == batch.token_columns.end() ? at::Tensor() : (column->second >= 0).nonzero().flatten();
}

}  // namespace

std::vector<Sample> TokenCls::encode(const Row& row, const Encoder& encoder) const {
  Json talk = query_of(row);
  Json& messages = talk["messages"];
  if (messages.size() != 1) throw RowError(row.origin, "messages", "one text whose words are labelled is wanted");
  messages[0]["role"] = "user";
  const auto text = messages[0]["content"].get<std::string>();
  Sample sample = encoder.encode_text(row, talk);
  const std::vector<WordPlace> words = word_places(encoder.tokenizer(), text, sample.ids);
  if (words.empty())
    throw RowError(
        row.origin, "messages",
        "the text was cut (--max_length), or stands among other words (--system): its words cannot be found again");
  const std::vector<int64_t> labels = labels_of(row, words.size(), head_.labels);
  std::vector<float>& column = sample.token_columns[kWordLabel];
  column.assign(sample.ids.size(), kUnlabelled);
  for (size_t i = 0; i < words.size(); ++i)
    if (labels[i] >= 0) column[words[i].token] = static_cast<float>(labels[i]);
  return {std::move(sample)};
}

double TokenCls::count(const Batch& batch) const {
  const at::Tensor places = labelled_places(batch);
  return places.defined() ? static_cast<double>(places.numel()) : 0;
}

Loss TokenCls::loss(Actors& actors, Batch& batch, const Forward& forward) {
  const at::Tensor hidden_TD = forward.hidden(actors.policy, batch);
  const at::Tensor logit_TN = scores_of_tokens(actors.policy, hidden_TD, batch.step);
  const at::Tensor places = labelled_places(batch);
  if (!places.defined() || places.numel() == 0) return {.sum = logit_TN.sum() * 0, .metrics = {}};
  const at::Tensor logit_WN = logit_TN.index_select(0, places);
  const at::Tensor wanted_W = batch.token_columns.at(kWordLabel).index_select(0, places).to(at::kLong);
  Loss out{.sum = label_losses(logit_WN, wanted_W, Problem::Single).sum(), .metrics = {}};
  out.metrics["acc"] = mean_of(labelled_right(logit_WN.detach(), wanted_W, Problem::Single));
  return out;
}

namespace {
const RegisterAlgorithm<TokenCls> token_cls("token_cls");
}  // namespace

}  // namespace apus
