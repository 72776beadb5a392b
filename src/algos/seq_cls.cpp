// SPDX-License-Identifier: Apache-2.0
#include "algos/seq_cls.h"

#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "algos/pairs.h"
#include "data/rows/documents.h"
#include "models/pooling.h"

namespace apus {
namespace {

constexpr const char* kLabel = "label";

std::string column_of(int64_t label) { return str(kLabel, "_", label); }

// What a row's `label` says, as columns of its sample.
class LabelReader {
 public:
  LabelReader(const Row& row, const ScoreHead& head) : row_(row), head_(head) {}

  std::map<std::string, float> read(Problem problem) const {
    const auto found = row_.value.find(kLabel);
    if (found == row_.value.end() || found->is_null()) bad("the row has no label; it is the column to be learnt");
    std::map<std::string, float> columns;
    if (problem == Problem::Single) {
      columns[kLabel] = static_cast<float>(number_of_label(*found));
    } else if (problem == Problem::Multi) {
      if (!found->is_array()) bad(str("a list of labels is wanted, such as [0, 2], not ", shown(*found)));
      columns[kLabel] = static_cast<float>(found->size());  // also of a row with none
      for (const Json& each : *found) columns[column_of(number_of_label(each))] = 1;
    } else {
      const Json list = found->is_array() ? *found : Json::array({*found});
      if (std::ssize(list) != head_.labels)
        bad(str(head_.labels, " numbers are wanted (--num_labels), the row has ", list.size()));
      for (int64_t i = 0; i < head_.labels; ++i) columns[column_of(i)] = number(list[static_cast<size_t>(i)]);
    }
    return columns;
  }

 private:
  [[noreturn]] void bad(const std::string& why) const { throw RowError(row_.origin, kLabel, why); }
  static std::string shown(const Json& value) { return json_text(value).substr(0, 40); }
  int64_t number_of_label(const Json& value) const {
    const bool whole = value.is_number_integer() || value.is_boolean() ||
                       (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
    const double label = !whole ? -1 : value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<double>();
    if (label < 0 || label >= static_cast<double>(head_.labels))
      bad(str(shown(value), " is no label: they are the whole numbers from 0 to ", head_.labels - 1, " (--num_labels ",
              head_.labels, ")"));
    return static_cast<int64_t>(label);
  }
  float number(const Json& value) const {
    if (!value.is_number()) bad(str(shown(value), " is no number"));
    return value.get<float>();
  }
  const Row& row_;
  const ScoreHead& head_;
};

at::Tensor wanted_of(const Batch& batch, Problem problem, int64_t labels) {
  if (problem == Problem::Single) return batch.sequence_columns.at(kLabel).to(at::kLong);
  const auto sequences = static_cast<int64_t>(batch.step.length_q.size());
  at::Tensor wanted_SN = at::zeros({sequences, labels}, batch.id_T.options().dtype(at::kFloat));
  for (int64_t i = 0; i < labels; ++i)
    if (const auto column = batch.sequence_columns.find(column_of(i)); column != batch.sequence_columns.end())
      wanted_SN.select(1, i).copy_(at::nan_to_num(column->second, 0));  // nan: this text has not what another has
  return wanted_SN;
}

}  // namespace

std::vector<Sample> SeqCls::encode(const Row& row, const Encoder& encoder) const {
  Json talk = query_of(row);
  Json& messages = talk["messages"];
  if (messages.size() == 1 && messages[0]["role"] == "assistant") messages[0]["role"] = "user";  // a bare text
  Sample sample = encoder.encode_text(row, talk);
  sample.columns.merge(LabelReader(row, head_).read(problem_));
  return {std::move(sample)};
}

Loss SeqCls::loss(Actors& actors, Batch& batch, const Forward& forward) {
  const at::Tensor hidden_TD = forward.hidden(actors.policy, batch);
  const at::Tensor logit_SN = text_scores(actors.policy, batch.id_T, hidden_TD, batch.step);
  const at::Tensor wanted = wanted_of(batch, problem_, logit_SN.size(1));
  Loss out{.sum = label_losses(logit_SN, wanted, problem_).sum(), .metrics = {}};
  if (problem_ == Problem::Regression)
    out.metrics["mae"] = mean_of((logit_SN.detach() - wanted).abs());
  else
    out.metrics["acc"] = mean_of(labelled_right(logit_SN.detach(), wanted, problem_));
  return out;
}

namespace {
const RegisterAlgorithm<SeqCls> seq_cls("seq_cls");
}  // namespace

}  // namespace apus
