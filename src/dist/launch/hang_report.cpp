// SPDX-License-Identifier: Apache-2.0
#include "dist/launch/hang_report.h"

#include <algorithm>
#include <set>

#include "base/clock.h"
#include "base/error.h"

namespace apus {

namespace {

constexpr size_t kLines = 12;  // a note to the launcher is short

// "0, 2-7"
std::string ranges_text(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0, end = 0; i < ranks.size(); i = end) {
    for (end = i + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
    text += str(text.empty() ? "" : ", ", ranks[i], end - i > 2 ? str("-", ranks[end - 1]) : "");
    if (end - i == 2) text += str(", ", ranks[i + 1]);
  }
  return text;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + ranges_text(ranks);
}

std::string line_of(const RankCalls& r) {
  const std::string at = r.where.empty() ? "" : ", at " + r.where;
  const std::string before = r.last.empty() ? "" : "; before it ended " + r.last[0].text();
  if (!r.heard)
    return str("silent: stopped, or cut off", at,
               r.waits.empty() ? before : "; its last word is that it waits in " + r.waits[0].text());
  if (r.waits.empty()) return str("alive, and in no collective: busy, or stuck elsewhere", at, before);
  return "waiting in " + r.waits[0].text() + at;
}

// Those of the call's peers that it waits for: who is silent, else who has not come to it.
std::set<int> missing_in(const CommCall& call, const std::map<int, const RankCalls*>& by_rank) {
  std::set<int> silent, behind;
  for (const int peer : call.peers) {
    const auto found = by_rank.find(peer);
    if (found == by_rank.end() || !found->second->heard) {
      silent.insert(peer);
      continue;
    }
    const auto begun = found->second->begun.find(call.counter);
    if (begun == found->second->begun.end() || begun->second < call.number) behind.insert(peer);
  }
  return silent.empty() ? behind : silent;
}

// Ranks that others wait for, directly or through others, and that wait for nobody.
std::vector<int> culprits(const std::vector<RankCalls>& ranks, const std::map<int, const RankCalls*>& by_rank) {
  std::set<int> out;
  for (const RankCalls& r : ranks)
    for (const CommCall& call : r.waits)
      if (r.heard)
        for (const int peer : missing_in(call, by_rank)) {
          const auto found = by_rank.find(peer);
          if (found == by_rank.end() || !found->second->heard || found->second->waits.empty()) out.insert(peer);
        }
  return {out.begin(), out.end()};
}

CommCall call_of(const Json& told) {
  return {.group = told.at("group"),
          .op = told.at("op"),
          .peers = told.at("peers"),
          .counter = told.at("counter"),
          .number = told.at("number"),
          .bytes = told.at("bytes")};
}

Json json_of(const std::vector<CommCall>& calls) {
  Json list = Json::array();
  for (const CommCall& c : calls)
    list.push_back({{"group", c.group},
                    {"op", c.op},
                    {"peers", c.peers},
                    {"counter", c.counter},
                    {"number", c.number},
                    {"bytes", c.bytes}});
  return list;
}

}  // namespace

std::string CommCall::text() const {
  const char* towards = op == "send" ? " to " : op == "recv" ? " from " : " with ";
  return str(op, " ", number, " of '", group, "', ", bytes_text(bytes), towards, ranks_text(peers));
}

Json to_json(const RankCalls& r) {
  return {
      {"rank", r.rank}, {"where", r.where}, {"waits", json_of(r.waits)}, {"last", json_of(r.last)}, {"begun", r.begun}};
}

RankCalls rank_calls(const Json& told) {
  try {
    RankCalls r{.rank = told.at("rank"), .where = told.at("where")};
    for (const Json& call : told.at("waits")) r.waits.push_back(call_of(call));
    for (const Json& call : told.at("last")) r.last.push_back(call_of(call));
    r.begun = told.at("begun").get<std::map<std::string, int64_t>>();
    return r;
  } catch (const nlohmann::json::exception& error) {
    fail(Fault::Comm, "what a rank told of its collectives is not readable: ", error.what());
  }
}

std::string hang_report(const std::vector<RankCalls>& ranks) {
  std::map<int, const RankCalls*> by_rank;
  std::vector<std::pair<std::string, std::vector<int>>> lines;  // in the order of their first ranks
  for (const RankCalls& r : ranks) {
    by_rank[r.rank] = &r;
    const std::string line = line_of(r);
    auto same = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == line; });
    if (same == lines.end()) same = lines.insert(lines.end(), {line, {}});
    same->second.push_back(r.rank);
  }
  const std::vector<int> blamed = culprits(ranks, by_rank);
  std::string out = "what the ranks do:";
  for (size_t i = 0; i < std::min(lines.size(), kLines); ++i)
    out += str("\n  ", ranks_text(lines[i].second), ": ", lines[i].first);
  if (lines.size() > kLines) out += str("\n  and ", lines.size() - kLines, " more kinds of waiting");
  out += blamed.empty() ? "\nthe ranks wait for each other: they do different things, or lines between them are cut"
                        : str("\nin the end all wait for ", ranks_text(blamed));
  return out;
}

}  // namespace apus
