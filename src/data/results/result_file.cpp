// SPDX-License-Identifier: Apache-2.0
#include "data/results/result_file.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/differences.h"
#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"

namespace apus {
namespace fs = std::filesystem;

namespace {
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Standard output, a pipe, a device: nothing can be read back from it.
bool is_stream(const std::string& path) {
  std::error_code code;
  return path == "-" || (fs::exists(path, code) && !fs::is_regular_file(path, code) && !fs::is_directory(path, code));
}
}  // namespace

std::string row_key(const Json& record) {
  Json row = record;
  for (const char* added : {"response", "labels", "logprobs", "logits", "probabilities", "spoken", "boxes"})
    row.erase(added);
  if (const auto m = row.find("messages"); m != row.end() && m->is_array() && !m->empty()) m->erase(m->size() - 1);
  return json_text(row);
}

ResultFile::ResultFile(Spec spec) : spec_(std::move(spec)) {
  if (is_stream(spec_.path)) spec_.resume = false;
  if (spec_.resume) require_same_maker(), take_over();
}

ResultFile::Record ResultFile::read_record(const Json& record) {
  require(record.is_object(), Fault::Data, "a result must be an object");
  const auto response = record.find("response");
  const bool text = response != record.end() && response->is_string();
  return {row_key(record),
          text                       ? response->get<std::string>()
          : response != record.end() ? json_text(*response)
                                     : "",
          json_text(record)};
}

void ResultFile::advance_before() {
  std::string line;
  next_before_.reset();
  if (before_->next(line)) next_before_ = read_record(parse_json(line, str(spec_.path, ":", before_->number())));
}

std::string ResultFile::journal_path() const {
  return spec_.path + ".unfinished" + (spec_.process ? str("-", *spec_.process) : "");
}

std::vector<std::string> ResultFile::all_journals() const {
  const fs::path file = spec_.path;
  const std::string begin = file.filename().string() + ".unfinished";
  std::vector<std::string> all;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(file.has_parent_path() ? file.parent_path() : ".", code)) {
    const std::string name = entry.path().filename().string();
    if (name == begin || name.starts_with(begin + "-")) all.push_back(entry.path().string());
  }
  std::sort(all.begin(), all.end());
  return all;
}

void ResultFile::require_same_maker() const {
  const auto holds_something = [](const fs::path& file) {
    std::error_code code;
    return fs::is_regular_file(file, code) && fs::file_size(file, code) > 0;
  };
  std::vector<std::string> earlier = all_journals();
  earlier.push_back(spec_.path);
  if (spec_.made_by.is_null() || std::none_of(earlier.begin(), earlier.end(), holds_something)) return;
  const char* const advice = "Choose another --result_path, or --resume false to write it anew";
  require(fs::exists(maker_path()), Fault::Usage, spec_.path, " holds answers, and no ", maker_path(),
          " says which model made them. ", advice);
  const auto wrong = differences(parse_json(read_file(maker_path()), maker_path()), spec_.made_by);
  require(wrong.empty(), Fault::Usage, spec_.path, " holds answers that were made otherwise: ", join(wrong, "; "), ". ",
          advice);
}

void ResultFile::take_over() {
  if (keep_whole_lines(spec_.path) > 0) {
    before_ = std::make_unique<LineReader>(spec_.path);
    advance_before();
  }
  for (const std::string& journal : all_journals()) take_journal(journal);
}

void ResultFile::take_journal(const std::string& path) {
  keep_whole_lines(path);
  LineReader reader(path);
  for (std::string line; reader.next(line);) {
    const Json entry = parse_json(line, str(path, ":", reader.number()));
    require(entry.is_object() && entry.contains("row") && entry.contains("record"), Fault::Data, path, ":",
            reader.number(), ": not a journal of results");
    journaled_[entry["row"].get<int64_t>()] = read_record(entry["record"]);
  }
}

std::optional<std::string> ResultFile::finished_before(int64_t row, const std::string& key) {
  if (next_before_ && next_before_->key == key) {
    std::string response = next_before_->response;
    advance_before();
    next_ = row + 1;
    return response;
  }
  const auto it = journaled_.find(row);
  if (it == journaled_.end() || it->second.key != key) return std::nullopt;
  ready_[row] = it->second.text;
  return it->second.response;
}

void ResultFile::begin() {
  require(!next_before_, Fault::Usage, spec_.path, ", line ", before_ ? before_->number() : 0,
          ": this record is of no row of this run, or of another order of rows; "
          "choose another --result_path, or --resume false to write it anew");
  before_.reset();
  if (!spec_.made_by.is_null() && !is_stream(spec_.path) && spec_.process.value_or(0) == 0) {
    if (const fs::path file = spec_.path; file.has_parent_path()) fs::create_directories(file.parent_path());
    write_file_atomic(maker_path(), spec_.made_by.dump(2) + "\n");
  }
  if (!spec_.process)
    file_ = std::make_unique<LineWriter>(spec_.path, spec_.resume ? LineWriter::Mode::Append : LineWriter::Mode::Anew);
  if (!is_stream(spec_.path))
    journal_ =
        std::make_unique<LineWriter>(journal_path(), spec_.resume ? LineWriter::Mode::Append : LineWriter::Mode::Anew);
  written_at_ = now();
}

void ResultFile::add(int64_t row, const Json& record) {
  if (journal_) {
    journal_->write(json_text(Json{{"row", row}, {"record", record}}));
    journal_->flush();
  }
  if (spec_.process) return;
  ready_[row] = json_text(record);
  write_ready(false);
}

void ResultFile::leave_out(int64_t row) {
  if (spec_.process) return;
  ready_[row] = std::nullopt;
  write_ready(false);
}

void ResultFile::write_ready(bool all) {
  int64_t count = 0, expected = next_;
  for (const auto& [row, text] : ready_) {
    if (row > expected && !all) break;
    expected = std::max(expected, row + 1);
    ++count;
  }
  const bool due = spec_.write_every > 0 && (count >= spec_.write_every || now() - written_at_ > spec_.seconds);
  if (count == 0 || !(all || due)) return;
  for (; count > 0; --count) {
    const auto it = ready_.begin();
    if (it->second) file_->write(*it->second);
    ready_.erase(it);
  }
  next_ = expected;
  file_->flush();
  written_at_ = now();
  if (ready_.empty() && journal_) journal_ = std::make_unique<LineWriter>(journal_path(), LineWriter::Mode::Anew);
}

void ResultFile::close() {
  if (spec_.process) return journal_->close();
  write_ready(true);
  file_->close();
  journal_.reset();
  std::error_code code;
  for (const std::string& journal : all_journals()) fs::remove(journal, code);
}

void ResultFile::forget() {
  std::error_code code;
  for (const std::string& journal : all_journals()) fs::remove(journal, code);
  if (!is_stream(spec_.path)) fs::remove(spec_.path, code), fs::remove(maker_path(), code);
}

}  // namespace apus
