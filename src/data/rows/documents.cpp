// SPDX-License-Identifier: Apache-2.0
#include "data/rows/documents.h"

#include <numeric>
#include <span>

#include "base/random.h"
#include "text/ended_text.h"

namespace apus {
namespace {

bool has_system(const Json& messages) { return !messages.empty() && messages[0].value("role", "") == "system"; }

Json without_system(Json messages) {
  if (has_system(messages)) messages.erase(messages.begin());
  return messages;
}

}  // namespace

std::vector<Json> conversations_of(const Row& row, const char* column) {
  const auto found = row.value.find(column);
  if (found == row.value.end() || found->is_null()) return {};
  if (!found->is_array())
    throw RowError(row.origin, column, "must be a list of conversations: [[{\"role\": ..., \"content\": ...}], ...]");
  if (!found->empty() && (*found)[0].is_object()) return {*found};
  std::vector<Json> out(found->begin(), found->end());
  for (size_t i = 0; i < out.size(); ++i)
    if (!out[i].is_array() || out[i].empty() || !out[i][0].is_object())
      throw RowError(row.origin, column, str("entry ", i, " is no conversation: a list of messages is wanted"));
  return out;
}

std::vector<Json> chosen_of(std::vector<Json> all, int64_t count, bool fill, const Row& row) {
  const auto wanted = static_cast<size_t>(count);
  Random random(static_cast<uint64_t>(row.origin.line), "data.documents");
  if (all.size() > wanted && !fill) {
    std::vector<size_t> order(all.size());
    std::iota(order.begin(), order.end(), size_t{0});
    random.shuffle(std::span(order));
    std::vector<Json> some;
    for (size_t i = 0; i < wanted; ++i) some.push_back(all[order[i]]);
    return some;
  }
  if (all.size() > wanted) all.resize(wanted);
  for (const size_t there = all.size(); fill && there > 0 && all.size() < wanted;)
    all.push_back(all[random.below(there)]);
  return all;
}

Json query_and_document(const Json& query, const Json& document) {
  Json out = has_system(document) ? without_system(query) : query;
  if (has_system(document)) out.insert(out.begin(), document[0]);
  for (Json& message : without_system(document)) out.push_back(std::move(message));
  return out;
}

std::string system_of(const Json& messages) {
  return has_system(messages) ? joined_texts(Json::array({messages[0]})) : "";
}

std::string text_without_system(const Json& messages) { return joined_texts(without_system(messages)); }

}  // namespace apus
