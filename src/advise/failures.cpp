// SPDX-License-Identifier: Apache-2.0
#include "advise/failures.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "base/assets.h"

namespace apus {

namespace {
constexpr size_t kHead = size_t{4} << 20, kTail = size_t{12} << 20;
constexpr size_t kErrorLines = 5;
constexpr size_t kGram = 4;  // characters

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The longest text that every match contains, as far as it can be told at a glance: outside of groups, classes and what may
// be absent. Empty when in doubt.
std::string literal_in(const std::string& expression) {
  std::string longest, run;
  int depth = 0;
  const auto end_run = [&] {
    if (run.size() > longest.size()) longest = run;
    run.clear();
  };
  for (size_t i = expression.starts_with("(?i)") ? 4 : 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\' && i + 1 < expression.size()) {
      const char next = expression[++i];
      if (depth == 0 && !std::isalnum(static_cast<unsigned char>(next))) run += next;
      else end_run();
    } else if (c == '[') {
      end_run();
      i = std::min(expression.find(']', i + 2), expression.size());
    } else if (c == '(' || c == ')') {
      end_run();
      depth += c == '(' ? 1 : -1;
    } else if (c == '|' && depth == 0) {
      return "";
    } else if (c == '?' || c == '*' || c == '{') {  // the one before may be absent
      if (!run.empty()) run.pop_back();
      end_run();
      if (c == '{') i = std::min(expression.find('}', i), expression.size());
    } else if (c == '.' || c == '+' || c == '^' || c == '$') {
      end_run();
    } else if (depth == 0) {
      run += c;
    }
  }
  end_run();
  return lower_case(longest);
}

std::vector<Failure> read_failures() {
  std::vector<Failure> all;
  const Json file = parse_json(asset("advise/failures.json"), "failures.json", Fault::Bug);
  for (const Json& row : file.at("failures")) {
    Failure failure{row.at("id"), row.at("title"), row.at("cause"), row.at("remedy"), row.at("weight"), {}, {}};
    for (const Json& expression : row.at("match")) {
      failure.match.emplace_back(expression.get<std::string>(), failure.id);
      failure.literals.push_back(literal_in(expression));
      require(failure.literals.back().size() >= kGram, Fault::Bug, "failures.json, ", failure.id, ": each line that ", expression.get<std::string>(),
              " matches must contain ", kGram, " known characters in a row, outside of groups and alternatives");
    }
    all.push_back(std::move(failure));
  }
  return all;
}

// Logs are long and expressions are slow: the first characters of the expressions' literals, looked up at each place of a line,
// leave few lines to try, and few expressions to try on them.
struct Candidate {
  size_t failure, expression;
};
using Index = std::unordered_multimap<uint32_t, Candidate>;

uint32_t gram_at(const std::string& text, size_t at) {
  uint32_t gram = 0;
  std::memcpy(&gram, text.data() + at, kGram);
  return gram;
}

struct Finder {
  Index index;
  std::bitset<65536> seen;  // of the index's keys, folded
  static size_t fold(uint32_t gram) { return (gram * 2654435761u) >> 16; }

  Finder() {
    const auto& all = known_failures();
    for (size_t f = 0; f < all.size(); ++f)
      for (size_t e = 0; e < all[f].match.size(); ++e) {
        const uint32_t gram = gram_at(all[f].literals[e], 0);
        index.emplace(gram, Candidate{f, e});
        seen.set(fold(gram));
      }
  }
  // Numbers of the failures that the line speaks of, rising.
  std::set<size_t> look(const std::string& line, const std::string& lower) const {
    std::set<size_t> found;
    for (size_t at = 0; at + kGram <= lower.size(); ++at) {
      const uint32_t gram = gram_at(lower, at);
      if (!seen.test(fold(gram))) continue;
      const auto [first, last] = index.equal_range(gram);
      for (auto it = first; it != last; ++it) {
        const auto& [f, e] = it->second;
        const Failure& failure = known_failures()[f];
        if (!found.count(f) && lower.compare(at, failure.literals[e].size(), failure.literals[e]) == 0 && failure.match[e].found_in(line)) found.insert(f);
      }
    }
    return found;
  }
};

const Finder& finder() {
  static const Finder built;
  return built;
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
    std::string_view line = text.substr(at, end - at);
    for (size_t stop = 0; !line.empty(); line.remove_prefix(std::min(stop + 1, line.size()))) {
      stop = std::min(line.find('\r'), line.size());
      if (stop > 0) matcher.line(line.substr(0, stop), number);
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
  const std::string lower = lower_case(text);
  for (const size_t index : finder().look(text, lower)) {
    const Failure& failure = known_failures()[index];
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
