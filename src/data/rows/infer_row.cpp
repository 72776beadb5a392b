// SPDX-License-Identifier: Apache-2.0
#include "data/rows/infer_row.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/lines.h"
#include "data/results/result_file.h"
#include "data/rows/normalize.h"

namespace apus {

namespace {

// Messages that a chat template understands as they stand.
bool for_templates(const Json& row) {
  static const std::set<std::string> roles = {"system", "developer", "user", "assistant", "tool"};
  const auto messages = row.find("messages");
  if (messages == row.end() || !messages->is_array() || messages->empty() || row.contains("system")) return false;
  return std::all_of(messages->begin(), messages->end(), [](const Json& m) {
    if (!m.is_object() || !m.contains("role") || !m["role"].is_string() || !roles.count(m["role"].get<std::string>()))
      return false;
    return !m.contains("content") || !m["content"].is_array();  // not every template takes content in parts
  });
}

}  // namespace

Json Question::record(const Json& response, Json logprobs, const Json& more) const {
  Json out = {{"response", response}, {"labels", label ? Json(*label) : Json()}, {"logprobs", std::move(logprobs)}};
  out.update(more);
  for (const auto& [name, value] : row.items())
    if (!out.contains(name)) out[name] = value;
  const bool text = response.is_string();
  out["messages"].push_back({{"role", "assistant"}, {"content", text ? response : Json(json_text(response))}});
  return out;
}

std::string Question::key() const { return row_key(record("", nullptr)); }

Question make_question(const Row& row, const NormalizeOptions& options, bool whole) {
  if (!row.value.is_object())
    throw RowError(row.origin, "", str("a row must be an object, is ", row.value.type_name()));
  Question q{.origin = row.origin};
  NormalizeOptions all_columns = options;
  all_columns.keep_unused = true;
  const bool as_it_stands =
      options.columns.empty() && options.names.empty() && !options.media && for_templates(row.value);
  q.row = as_it_stands ? row.value : normalize_row(row, all_columns);
  for (const char* media : {"images", "videos", "audios"})
    if (!options.media && q.row.contains(media) && !q.row[media].empty())
      throw RowError(row.origin, media, str("the row has ", media, ", but this model reads text only"));
  Json& messages = q.row["messages"];
  if (whole) {
    if (messages.size() == 1 && messages[0]["role"] == "assistant") messages[0]["role"] = "user";  // a bare text
    if (const auto label = q.row.find("label"); label != q.row.end() && !label->is_null()) q.label = json_text(*label);
    return q;
  }
  if (messages.back()["role"] == "assistant") {
    const auto content = messages.back().find("content");
    if (content != messages.back().end() && content->is_string()) q.label = content->get<std::string>();
    messages.erase(messages.size() - 1);
  }
  if (messages.empty()) throw RowError(row.origin, "messages", "there is no question in it, only an answer");
  return q;
}

namespace {
std::string spool_standard_input() {
  std::string path = (std::filesystem::temp_directory_path() / "apus-rows-XXXXXX.jsonl").string();
  const int descriptor = ::mkstemps(path.data(), 6);
  require(descriptor >= 0, Fault::Io, "cannot make a file for the rows of standard input: ", path, ": ",
          std::strerror(errno));
  ::close(descriptor);
  LineReader in("-");
  LineWriter out(path);
  for (std::string line; in.next(line);) out.write(line);
  out.close();
  return path;
}
}  // namespace

Questions::Questions(std::vector<QuestionSet> sets, std::optional<int64_t> limit)
    : sets_(std::move(sets)), limit_(limit.value_or(std::numeric_limits<int64_t>::max())) {
  for (auto& set : sets_)
    for (auto& path : set.files)
      if (path == "-") path = spooled_ = spooled_.empty() ? spool_standard_input() : spooled_;
}

Questions::~Questions() {
  std::error_code code;
  if (!spooled_.empty()) std::filesystem::remove(spooled_, code);
}

bool Questions::open_next() {
  for (; set_ < sets_.size(); ++set_, opened_ = 0, of_set_ = 0) {
    const QuestionSet& set = sets_[set_];
    if (set.count && of_set_ >= *set.count) continue;
    if (opened_ == set.files.size() && set.count && of_set_ > 0) opened_ = 0;
    if (opened_ == set.files.size()) continue;
    reader_ = open_reader(set.files[opened_++], set.encoding);
    return true;
  }
  return false;
}

bool Questions::read(Row& row) {
  if (index_ + 1 >= limit_) return false;
  for (;;) {
    if (reader_ && sets_[set_].count && of_set_ >= *sets_[set_].count) reader_.reset();
    if (!reader_ && !open_next()) return false;
    try {
      if (reader_->next(row)) {
        ++index_, ++of_set_;
        return true;
      }
    } catch (const RowError&) {
      ++index_, ++of_set_;
      throw;
    }
    reader_.reset();
  }
}

std::optional<Question> Questions::next() {
  Row row;
  if (!read(row)) return std::nullopt;
  return make_question(row, sets_[set_].normalize, sets_[set_].whole);
}

void Questions::rewind() {
  reader_.reset();
  set_ = opened_ = 0;
  of_set_ = 0;
  index_ = -1;
}

int64_t Questions::count() {
  rewind();
  Row row;
  for (bool more = true; more;) {
    try {
      more = read(row);
    } catch (const RowError&) {}
  }
  const int64_t all = index_ + 1;
  rewind();
  return all;
}

}  // namespace apus
