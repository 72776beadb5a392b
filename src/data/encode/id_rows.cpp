// SPDX-License-Identifier: Apache-2.0
#include "data/encode/id_rows.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace apus {
namespace {

std::vector<int64_t> whole_numbers(const Row& row, const std::string& key) {
  const auto found = row.value.find(key);
  if (found == row.value.end() || !found->is_array())
    throw RowError(row.origin, key, "a list of token ids is wanted here");
  std::vector<int64_t> out;
  for (const Json& number : *found) {
    if (!number.is_number_integer())
      throw RowError(row.origin, key, str("a token id is a whole number, not ", json_text(number).substr(0, 40)));
    out.push_back(number.get<int64_t>());
  }
  return out;
}

}  // namespace

bool has_ids(const Row& row, const std::string& prefix) { return row.value.contains(prefix + "input_ids"); }

Sample sample_of_ids(const Row& row, const std::string& prefix, const EncodeOptions& options) {
  const std::string ids_key = prefix + "input_ids", labels_key = prefix + "labels";
  const std::vector<int64_t> ids = whole_numbers(row, ids_key);
  const std::vector<int64_t> labels = row.value.contains(labels_key) ? whole_numbers(row, labels_key) : ids;
  const int64_t limit = options.vocabulary > 0 ? options.vocabulary : std::numeric_limits<int32_t>::max();
  if (ids.size() < 2) throw RowError(row.origin, ids_key, "at least two tokens are needed");
  if (labels.size() != ids.size())
    throw RowError(row.origin, labels_key, str("has ", labels.size(), " entries for ", ids.size(), " ids"));
  if (options.max_length > 0 && static_cast<int64_t>(ids.size()) > options.max_length)
    throw RowError(row.origin, ids_key,
                   str(ids.size(), " tokens are more than max_length (", options.max_length, "): raise --max_length"));
  Sample sample;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= limit)
      throw RowError(row.origin, ids_key,
                     str("entry ", i, " is ", ids[i], "; the model's tokens are 0 to ", limit - 1));
    if (labels[i] != -100 && labels[i] != ids[i])
      throw RowError(row.origin, labels_key,
                     str("entry ", i, " is ", labels[i], "; a label is the token itself (", ids[i], ") or -100"));
    sample.ids.push_back(static_cast<int32_t>(ids[i]));
    sample.trained.push_back(i > 0 && labels[i] != -100);
  }
  return sample;
}

void require_known_tokens(const Sample& sample, int64_t vocabulary, const Tokenizer& tokenizer) {
  if (vocabulary == 0 || sample.ids.empty() || !sample.media.empty()) return;
  const int32_t most = *std::max_element(sample.ids.begin(), sample.ids.end());
  require(most < vocabulary, Fault::Model, "the tokenizer gives token ", most, " ('",
          tokenizer.decode(std::vector<int32_t>{most}), "'), and the model's tokens are 0 to ", vocabulary - 1,
          " (vocab_size in config.json): is this the tokenizer that the model was saved with?");
}

}  // namespace apus
