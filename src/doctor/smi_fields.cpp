// SPDX-License-Identifier: Apache-2.0
#include "doctor/smi_fields.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "doctor/failures.h"

namespace apus::smi {

namespace {
constexpr size_t kLongestLine = 64 << 10;
bool space(char c) { return std::isspace(static_cast<unsigned char>(c)); }
}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(at, start), text.size());
    parts.push_back(trimmed(text.substr(start, end - start)));
    start = end + 1;
  }
  return parts;
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t at = 0; at < text.size();) {
    while (at < text.size() && space(text[at])) ++at;
    const size_t start = at;
    while (at < text.size() && !space(text[at])) ++at;
    if (at > start) all.push_back(text.substr(start, at - start));
  }
  return all;
}

std::vector<std::string> lines(std::string_view text) {
  std::vector<std::string> all;
  for (const auto line : split(text, '\n')) all.push_back(plain_line(line, kLongestLine));
  return all;
}

std::vector<std::string_view> bar_fields(const std::string& line) {
  const std::string_view bare = trimmed(line);
  if (bare.size() < 2 || bare.front() != '|' || bare.back() != '|') return {};
  return split(bare.substr(1, bare.size() - 2), '|');
}

std::optional<int64_t> whole(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > 1'000'000'000)
    return std::nullopt;
  return value;
}

double measure(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0 && value < 1e9)) return -1;
  const std::string_view unit = trimmed(text.substr(static_cast<size_t>(end - text.data())));
  const bool plain = std::all_of(unit.begin(), unit.end(), [](unsigned char c) { return std::isalpha(c) || c == '%'; });
  return plain && unit.size() <= 3 ? value : -1;
}

std::optional<Usage> last_usage(std::string_view field) {
  std::optional<Usage> last;
  const auto megabytes = [](std::string_view word) {
    if (word.ends_with("MiB")) word.remove_suffix(3);
    return whole(word).value_or(-1);
  };
  for (size_t slash = field.find('/'); slash != std::string_view::npos; slash = field.find('/', slash + 1)) {
    const auto before = words(field.substr(0, slash)), after = words(field.substr(slash + 1));
    if (before.empty() || after.empty()) continue;
    const Usage here{megabytes(before.back()), megabytes(after.front())};
    if (here.total > 0 || (here.total == 0 && here.used >= 0 && (!last || last->total == 0))) last = here;
  }
  return last;
}

}  // namespace apus::smi
