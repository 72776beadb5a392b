// SPDX-License-Identifier: Apache-2.0
#include "advise/failures.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/assets.h"

namespace apus {

namespace {
constexpr size_t kHead = size_t{4} << 20, kTail = size_t{12} << 20;
constexpr size_t kErrorLines = 5;

std::vector<Failure> read_failures() {
  std::vector<Failure> all;
  const Json file = parse_json(asset("advise/failures.json"), "failures.json", Fault::Bug);
  for (const Json& row : file.at("failures")) {
    Failure failure{row.at("id"), row.at("title"), row.at("cause"), row.at("remedy"), row.at("weight"), {}};
    for (const Json& expression : row.at("match")) failure.match.emplace_back(expression.get<std::string>(), failure.id);
    all.push_back(std::move(failure));
  }
  return all;
}

bool speaks_of_error(const std::string& text) {
  for (const char* word : {"Error", "ERROR", "Exception", "error:", "failed", "FATAL", "Aborted", "Segmentation fault"})
    if (text.find(word) != std::string::npos) return true;
  return false;
}

// "RuntimeError: ..." at the beginning: the end of a traceback, which names what went wrong.
bool ends_traceback(const std::string& text) {
  const size_t colon = text.find(": ");
  if (colon == std::string::npos || colon > 80 || text.find(' ') < colon) return false;
  const std::string_view name = std::string_view(text).substr(0, colon);
  return name.ends_with("Error") || name.ends_with("Exception");
}

// Feeds the lines of what it is given, from line `number` on; a carriage return ends a line too (progress bars).
int64_t feed(LogMatcher& matcher, std::string_view text, int64_t number) {
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    for (size_t start = at; start < end;) {
      const size_t stop = std::min(text.find('\r', start), end);
      if (stop > start) matcher.line(text.substr(start, stop - start), number);
      start = stop + 1;
    }
    at = end + 1;
  }
  return number;
}

// A file read to its end, of which only the beginning and the end are kept.
struct Ends {
  std::string head, tail;  // tail: of what comes after the head
  int64_t lines = 0;       // all of them
  bool skipped = false;

  void take(std::string_view piece) {
    lines += std::count(piece.begin(), piece.end(), '\n');
    const size_t room = kHead - head.size();
    head += piece.substr(0, room);
    if (piece.size() > room) tail += piece.substr(room);
    if (tail.size() > 2 * kTail) shorten();
  }
  void shorten() {
    if (tail.size() <= kTail) return;
    tail.erase(0, tail.size() - kTail);
    skipped = true;
  }
  // A line that the limit cuts in two is looked at whole.
  Explanation explain() {
    shorten();
    LogMatcher matcher;
    if (!skipped) head += tail, tail.clear();
    feed(matcher, head, 1);
    feed(matcher, tail, lines - std::count(tail.begin(), tail.end(), '\n') + 1);
    Explanation result = matcher.result();
    result.lines = lines, result.middle_skipped = skipped;
    return result;
  }
};
}  // namespace

const std::vector<Failure>& known_failures() {
  static const std::vector<Failure> all = read_failures();
  return all;
}

std::string plain_line(std::string_view text, size_t longest) {
  std::string plain;
  for (size_t i = 0; i < text.size() && plain.size() < longest; ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == 0x1b && i + 1 < text.size() && text[i + 1] == '[') {  // ESC [ parameters letter
      i += 2;
      while (i < text.size() && (text[i] < '@' || text[i] > '~')) ++i;
    } else if (c == '\t') {
      plain += ' ';
    } else if (c >= 0x20 && c != 0x7f) {
      plain += text[i];
    }
  }
  return plain;
}

void LogMatcher::line(std::string_view raw, int64_t number) {
  const std::string text = plain_line(raw);
  if (text.empty()) return;
  for (const Failure& failure : known_failures()) {
    const bool found = std::any_of(failure.match.begin(), failure.match.end(), [&](const Pattern& p) { return p.found_in(text); });
    if (!found) continue;
    const double bonus = ends_traceback(text) ? 0.5 : 0;
    const auto before = std::find_if(findings_.begin(), findings_.end(), [&](const Finding& f) { return f.failure == &failure; });
    if (before == findings_.end()) {
      findings_.push_back({&failure, number, 1, text});
      bonus_.push_back(bonus);
    } else {
      ++before->count;
      double& held = bonus_[static_cast<size_t>(before - findings_.begin())];
      held = std::max(held, bonus);
    }
  }
  if (speaks_of_error(text)) errors_.push_back(str("line ", number, ": ", text.substr(0, 300)));
  if (errors_.size() > kErrorLines) errors_.erase(errors_.begin());
}

Explanation LogMatcher::result() const {
  std::vector<size_t> order(findings_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto score = [&](size_t i) { return findings_[i].failure->weight + bonus_[i]; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return score(a) > score(b); });  // ties: the earlier line
  Explanation result;
  for (const size_t i : order) result.findings.push_back(findings_[i]);
  if (result.findings.empty()) result.error_lines = errors_;
  return result;
}

Explanation explain_text(std::string_view text) {
  Ends ends;
  ends.take(text);
  if (!text.empty() && text.back() != '\n') ends.take("\n");
  return ends.explain();
}

Explanation explain_log(const std::string& path) {
  const int file = path == "-" ? ::dup(0) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(file >= 0, Fault::Io, path, " cannot be read: ", std::strerror(errno));
  Ends ends;
  std::string buffer(size_t{1} << 16, '\0');
  ssize_t got = 0;
  char last = '\n';
  while ((got = ::read(file, buffer.data(), buffer.size())) != 0) {
    if (got < 0 && errno == EINTR) continue;
    const int error = errno;
    if (got < 0) ::close(file);
    require(got > 0, Fault::Io, path, " cannot be read: ", std::strerror(error));
    ends.take(std::string_view(buffer).substr(0, static_cast<size_t>(got)));
    last = buffer[static_cast<size_t>(got) - 1];
  }
  ::close(file);
  if (last != '\n') ends.take("\n");
  return ends.explain();
}

Json to_json(const Explanation& explanation) {
  Json findings = Json::array();
  for (const Finding& f : explanation.findings) {
    findings.push_back({{"id", f.failure->id}, {"title", f.failure->title}, {"cause", f.failure->cause}, {"remedy", f.failure->remedy},
                        {"weight", f.failure->weight}, {"line", f.line}, {"count", f.count}, {"text", f.text}});
  }
  return {{"known", !explanation.findings.empty()}, {"lines", explanation.lines}, {"middle_skipped", explanation.middle_skipped},
          {"findings", findings}, {"error_lines", explanation.error_lines}};
}

}  // namespace apus
