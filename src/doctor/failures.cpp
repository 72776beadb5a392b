// SPDX-License-Identifier: Apache-2.0
#include "doctor/failures.h"

#include <fcntl.h>

#include <algorithm>
#include <bitset>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/assets.h"
#include "base/descriptor.h"

namespace apus {

namespace {
constexpr size_t kHead = size_t{1} << 30, kTail = size_t{12} << 20;
constexpr size_t kErrorLines = 5;
constexpr size_t kPiece = 4096, kOverlap = 256;    // longer lines are looked at piece by piece
constexpr size_t kShortest = 40, kRemember = 240;  // of lines that may be broken ones; of such a message
constexpr size_t kGram = 4;                        // characters
// Characters of a literal that may be half a message; not "loss"
constexpr size_t kTelling = 10;

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The longest text that every match contains, as far as it can be told at a glance: outside of groups, classes and what
// may be absent. Empty when in doubt.
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
      if (depth == 0 && !std::isalnum(static_cast<unsigned char>(next)))
        run += next;
      else
        end_run();
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
  const Json file = parse_json(asset("knowledge/failures.json"), "failures.json", Fault::Bug);
  for (const Json& row : file.at("failures")) {
    Failure failure{row.at("id"), row.at("title"), row.at("cause"), row.at("remedy"), row.at("weight"), {}, {}};
    for (const Json& expression : row.at("match")) {
      failure.match.emplace_back(expression.get<std::string>(), failure.id);
      failure.literals.push_back(literal_in(expression));
      require(failure.literals.back().size() >= kGram, Fault::Bug, "failures.json, ", failure.id, ": each line that ",
              expression.get<std::string>(), " matches must contain ", kGram,
              " known characters in a row, outside of groups and alternatives");
    }
    all.push_back(std::move(failure));
  }
  return all;
}

// Logs are long and expressions are slow: the first characters of the expressions' literals, looked up at each place of
// a line, leave few lines to try, and few expressions to try on them.
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
  size_t longest = 0;       // literal
  static size_t fold(uint32_t gram) { return (gram * 2654435761u) >> 16; }

  Finder() {
    const auto& all = known_failures();
    for (size_t f = 0; f < all.size(); ++f)
      for (size_t e = 0; e < all[f].match.size(); ++e) {
        const uint32_t gram = gram_at(all[f].literals[e], 0);
        longest = std::max(longest, all[f].literals[e].size());
        index.emplace(gram, Candidate{f, e});
        seen.set(fold(gram));
      }
  }
  // Calls visit(candidate, where its literal begins) until that says true, from one place to another.
  template <class Visit>
  bool any_literal(const std::string& lower, size_t end, Visit visit) const {
    for (size_t at = 0; at < end && at + kGram <= lower.size(); ++at) {
      const uint32_t gram = gram_at(lower, at);
      if (!seen.test(fold(gram))) continue;
      const auto [first, last] = index.equal_range(gram);
      for (auto it = first; it != last; ++it) {
        const std::string& literal = known_failures()[it->second.failure].literals[it->second.expression];
        if (lower.compare(at, literal.size(), literal) == 0 && visit(it->second, at + literal.size())) return true;
      }
    }
    return false;
  }
  // Numbers of the failures that the line speaks of, rising. `near`: it holds a literal of another one.
  std::set<size_t> look(const std::string& line, const std::string& lower, bool* near = nullptr) const {
    std::set<size_t> found;
    any_literal(lower, lower.size(), [&](const Candidate& c, size_t) {
      if (found.count(c.failure)) return false;
      if (known_failures()[c.failure].match[c.expression].found_in(line))
        found.insert(c.failure);
      else if (near && known_failures()[c.failure].literals[c.expression].size() >= kTelling)
        *near = true;
      return false;
    });
    return found;
  }
  // Whether a literal begins before `border` and ends behind it.
  bool crosses(const std::string& text, size_t border) const {
    const size_t from = border - std::min(border, longest);
    const std::string lower = lower_case(text.substr(from, 2 * longest));
    return any_literal(lower, border - from, [&](const Candidate&, size_t end) { return end > border - from; });
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

// Behind "[rank3]: ", "(Worker pid=7) ".
std::string_view without_rank(std::string_view text) {
  if (text.empty() || (text[0] != '[' && text[0] != '(')) return text;
  const size_t end = text.find(text[0] == '[' ? ']' : ')');
  if (end == std::string_view::npos) return text;
  const size_t word = text.find_first_not_of(": ", end + 1);
  return word == std::string_view::npos ? text : text.substr(word);
}

// "RuntimeError: ..." at the beginning: the end of a traceback, which names what went wrong.
bool ends_traceback(const std::string& whole) {
  const std::string_view text = without_rank(whole);
  const size_t colon = text.find(": ");
  if (colon > 80 || text.find(' ') < colon) return false;
  const std::string_view name = text.substr(0, colon);
  return name.ends_with("Error") || name.ends_with("Exception");
}

// A line that begins with a date, a level or the like is no rest of the one before.
bool begins_record(const std::string& text) {
  if (ends_traceback(text) || text.starts_with("[") || text.starts_with("Traceback") || text.starts_with("  File \""))
    return true;
  for (const char* level : {"INFO", "WARN", "ERROR", "DEBUG", "FATAL", "CRITICAL"})
    if (text.starts_with(level)) return true;
  return text.size() > 4 &&
         std::all_of(text.begin(), text.begin() + 4, [](unsigned char c) { return std::isdigit(c); });
}

// A log that is looked at while it is read. A carriage return ends a line too (progress bars).
class Reader {
 public:
  void take(std::string_view piece) {
    lines_ += std::count(piece.begin(), piece.end(), '\n');
    const size_t room = std::min(piece.size(), kHead - taken_);
    taken_ += room;
    feed(piece.substr(0, room));
    tail_ += piece.substr(room);
    if (tail_.size() > 2 * kTail) shorten();
  }
  Explanation result() {
    shorten();
    if (skipped_) end_line(), number_ = lines_ - std::count(tail_.begin(), tail_.end(), '\n') + 1;
    feed(tail_);
    lines_ += !line_.empty();  // the last one, without its end
    end_line();
    Explanation result = matcher_.result();
    result.lines = lines_, result.middle_skipped = skipped_;
    return result;
  }

 private:
  void feed(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find_first_of("\n\r"), text.size());
      line_ += text.substr(0, end);
      if (end < text.size() || line_.size() > 16 * kPiece) end_line();
      if (end < text.size() && text[end] == '\n') ++number_;
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
  void end_line() {
    if (!line_.empty()) matcher_.line(line_, number_);
    line_.clear();
  }
  void shorten() {
    if (tail_.size() <= kTail) return;
    tail_.erase(0, tail_.size() - kTail);
    skipped_ = true;
  }

  LogMatcher matcher_;
  // What has not ended; the end of what is more than is looked at.
  std::string line_, tail_;
  size_t taken_ = 0;
  int64_t number_ = 1, lines_ = 0;
  bool skipped_ = false;
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
  const std::string text = plain_line(raw, raw.size());
  for (size_t at = 0; at < text.size(); at += kPiece - kOverlap) {
    piece(text.substr(at, kPiece), number);
    if (at + kPiece >= text.size()) break;
  }
}

void LogMatcher::piece(const std::string& text, int64_t number) {
  bool near = false;
  const std::set<size_t> found = finder().look(text, lower_case(text), &near);
  for (const size_t index : found) note(index, text, number, ends_traceback(text) ? 0.5 : 0);
  wrapped(text, found, near, number);
  if (speaks_of_error(text)) errors_.push_back(str("line ", number, ": ", text.substr(0, 300)));
  if (errors_.size() > kErrorLines) errors_.erase(errors_.begin());
}

void LogMatcher::wrapped(const std::string& text, const std::set<size_t>& known, bool near, int64_t number) {
  const bool rest = number != broken_.number && broken_.last >= kShortest && !begins_record(text);
  if (!rest) broken_ = {text, text, {}, number, 0, false};
  broken_.known.insert(known.begin(), known.end());
  broken_.last = text.size(), broken_.near |= near;
  const size_t first = std::min(text.find_first_not_of(' '), text.size());
  for (std::string* whole : {&broken_.tight, &broken_.loose}) {
    if (rest) {
      while (!whole->empty() && whole->back() == ' ') whole->pop_back();
      if (whole == &broken_.loose) *whole += ' ';
      const size_t border = whole->size();
      whole->append(text, first, kRemember);
      if (broken_.near || finder().crosses(*whole, border))
        for (const size_t index : finder().look(*whole, lower_case(*whole)))
          if (broken_.known.insert(index).second) note(index, *whole, number - 1, -0.25);
    }
    if (whole->size() > kRemember) whole->erase(0, whole->size() - kRemember);
  }
}

void LogMatcher::note(size_t index, const std::string& text, int64_t number, double bonus) {
  const Failure& failure = known_failures()[index];
  const auto before =
      std::find_if(findings_.begin(), findings_.end(), [&](const Finding& f) { return f.failure == &failure; });
  if (before == findings_.end()) {
    findings_.push_back({&failure, number, 1, text});
    bonus_.push_back(bonus);
    return;
  }
  ++before->count;
  double& held = bonus_[static_cast<size_t>(before - findings_.begin())];
  held = std::max(held, bonus);
}

Explanation LogMatcher::result() const {
  std::vector<size_t> order(findings_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto score = [&](size_t i) { return findings_[i].failure->weight + bonus_[i]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return score(a) > score(b); });  // ties: the earlier line
  Explanation result;
  for (const size_t i : order) result.findings.push_back(findings_[i]);
  if (result.findings.empty()) result.error_lines = errors_;
  return result;
}

Explanation explain_text(std::string_view text) {
  Reader reader;
  reader.take(text);
  return reader.result();
}

Explanation explain_log(const std::string& path) {
  const Descriptor file(path == "-" ? ::dup(0) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  require(file.is_open(), Fault::Io, path, " cannot be read: ", std::strerror(errno));
  Reader reader;
  std::string buffer(size_t{1} << 16, '\0');
  ssize_t got = 0;
  while ((got = ::read(file.number(), buffer.data(), buffer.size())) != 0) {
    if (got < 0 && errno == EINTR) continue;
    require(got > 0, Fault::Io, path, " cannot be read: ", std::strerror(errno));
    reader.take(std::string_view(buffer).substr(0, static_cast<size_t>(got)));
  }
  return reader.result();
}

Json to_json(const Explanation& explanation) {
  Json findings = Json::array();
  for (const Finding& f : explanation.findings) {
    findings.push_back({{"id", f.failure->id},
                        {"title", f.failure->title},
                        {"cause", f.failure->cause},
                        {"remedy", f.failure->remedy},
                        {"weight", f.failure->weight},
                        {"line", f.line},
                        {"count", f.count},
                        {"text", f.text}});
  }
  return {{"known", !explanation.findings.empty()},
          {"lines", explanation.lines},
          {"middle_skipped", explanation.middle_skipped},
          {"findings", findings},
          {"error_lines", explanation.error_lines}};
}

}  // namespace apus
