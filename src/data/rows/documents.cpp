// SPDX-License-Identifier: Apache-2.0
#include "data/rows/documents.h"

#include <numeric>
#include <span>

#include "base/random.h"
#include "data/rows/media_refs.h"
#include "text/ended_text.h"

namespace apus {
namespace {

bool has_system(const Json& messages) { return !messages.empty() && messages[0].value("role", "") == "system"; }

Json without_system(Json messages) {
  if (has_system(messages)) messages.erase(messages.begin());
  return messages;
}

}  // namespace

Json query_of(const Row& row) {
  Json out = {{"messages", row.value["messages"]}};
  for (const MediaKind& kind : kMediaKinds)
    if (row.value.contains(kind.column)) out[kind.column] = row.value[kind.column];
  if (row.value.contains("objects")) out["objects"] = row.value["objects"];
  return out;
}

namespace {
std::vector<Json> conversations_of(const Row& row, const std::string& column) {
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

// Entries of one list to those talks whose tags stand for them; all of them to a single one.
void share_media(std::vector<Json>& talks, const Json& entries, const MediaKind& kind, const Row& row,
                 const std::string& column) {
  size_t next = 0;
  for (Json& talk : talks) {
    const size_t own = talks.size() == 1 ? entries.size() : tags_in(talk["messages"], kind.tag);
    for (size_t i = 0; i < own && next < entries.size(); ++i) talk[kind.column].push_back(entries[next++]);
  }
  if (next < entries.size())
    throw RowError(row.origin, column,
                   str(entries.size(), " entries for ", talks.size(), " conversations with ", next, " ", kind.tag,
                       " tags: write a tag where each of them belongs"));
}
}  // namespace

std::vector<Json> documents_of(const Row& row, const std::string& which) {
  std::vector<Json> out;
  for (Json& messages : conversations_of(row, which + "_messages")) {
    out.push_back(Json::object());
    out.back()["messages"] = std::move(messages);
  }
  for (const MediaKind& kind : kMediaKinds)
    if (const std::string column = which + "_" + kind.column;
        row.value.contains(column) && !row.value[column].is_null())
      share_media(out, row.value[column], kind, row, column);
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

Json with_media_of(Json messages, const Json& query, const Json& document) {
  Json out = {{"messages", std::move(messages)}};
  for (const MediaKind& kind : kMediaKinds)
    for (const Json* talk : {&query, &document})
      if (talk->contains(kind.column))
        for (const Json& entry : (*talk)[kind.column]) out[kind.column].push_back(entry);
  if (query.contains("objects")) out["objects"] = query["objects"];
  return out;
}

Json query_and_document(const Json& query, const Json& document) {
  const Json &asked = query["messages"], &said = document["messages"];
  Json out = has_system(said) ? without_system(asked) : asked;
  if (has_system(said)) out.insert(out.begin(), said[0]);
  const size_t second = out.size();
  for (Json& message : without_system(said)) out.push_back(std::move(message));
  Json talk = with_media_of(std::move(out), query, document);
  talk[kSecondMessage] = second;
  return talk;
}

std::string system_of(const Json& talk) {
  const Json& messages = talk["messages"];
  return has_system(messages) ? joined_texts(Json::array({messages[0]})) : "";
}

std::string text_without_system(const Json& talk) { return joined_texts(without_system(talk["messages"])); }

}  // namespace apus
