// SPDX-License-Identifier: Apache-2.0
#include "advise/smi.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "advise/failures.h"

namespace apus {

namespace {
constexpr size_t kMostDevices = 1024, kLongestLine = 64 << 10, kLongestLink = 32;
constexpr int64_t kMegabyte = int64_t{1} << 20;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
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
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
    const size_t start = at;
    while (at < text.size() && !std::isspace(static_cast<unsigned char>(text[at]))) ++at;
    if (at > start) all.push_back(text.substr(start, at - start));
  }
  return all;
}

std::vector<std::string> lines(std::string_view text) {
  std::vector<std::string> all;
  for (const auto line : split(text, '\n')) all.push_back(plain_line(line, kLongestLine));
  return all;
}

std::optional<int64_t> whole(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > 1'000'000'000)
    return std::nullopt;
  return value;
}

double measure(std::string_view text) {  // -1 for "-", "NA", "[N/A]"
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 && value < 1e9 ? value : -1;
}

// The last "used / total" of a field, in megabytes; "26838/ 32768" has a space on one side only.
std::optional<std::pair<int64_t, int64_t>> last_pair(std::string_view field) {
  std::optional<std::pair<int64_t, int64_t>> last;
  for (size_t slash = field.find('/'); slash != std::string_view::npos; slash = field.find('/', slash + 1)) {
    const auto before = words(field.substr(0, slash)), after = words(field.substr(slash + 1));
    if (before.empty() || after.empty()) continue;
    const auto used = whole(before.back()), total = whole(after.front());
    if (used && total) last = {*used, *total};
  }
  return last;
}

bool chip_name(std::string_view word) {
  return std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isalpha(c); }) ||
         word.find("910") != std::string_view::npos || word.find("310") != std::string_view::npos;
}

// First row of a device: "0  910B3 | OK | 101.8  43  0 / 0".
std::optional<Status> first_row(const std::vector<std::string_view>& fields) {
  const auto id = words(fields[0]), readings = words(fields[2]);
  if (id.size() != 2 || !whole(id[0]) || !chip_name(id[1]) || readings.size() < 2) return std::nullopt;
  Status s;
  s.index = static_cast<int>(*whole(id[0]));
  s.name = id[1], s.health = fields[1];
  s.power_w = measure(readings[0]), s.temperature_c = measure(readings[1]);
  return s;
}

// Second row: "0 | 0000:C1:00.0 | 0  0 / 0  3318 / 65536"; with two numbers first, the second is the device's own.
bool second_row(const std::vector<std::string_view>& fields, Status& s) {
  const auto id = words(fields[0]), readings = words(fields[2]);
  if (id.empty() || id.size() > 2 || readings.empty()) return false;
  for (const auto each : id)
    if (!whole(each)) return false;
  if (id.size() == 2) s.index = static_cast<int>(*whole(id[1]));
  s.utilisation = measure(readings[0]);
  if (const auto memory = last_pair(fields[2]))
    s.memory_used = memory->first * kMegabyte, s.memory_total = memory->second * kMegabyte;
  return true;
}

bool device_word(std::string_view word, std::string_view kind) {
  return word.size() > kind.size() && word.starts_with(kind) && whole(word.substr(kind.size()));
}

std::string link_word(std::string_view word) { return std::string(word.substr(0, kLongestLink)); }

bool core_list(std::string_view word) {
  return !word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) &&
         word.find_first_not_of("0123456789-,") == std::string_view::npos;
}
}  // namespace

std::vector<Status> parse_npu_smi(std::string_view text) {
  std::vector<Status> all;
  const std::string version = npu_smi_version(text);
  std::optional<Status> open;  // its first row has been read
  for (const auto& line : lines(text)) {
    if (line.find("Process id") != std::string::npos || line.find("No running processes") != std::string::npos) break;
    const std::string_view bare = trimmed(line);
    if (bare.size() < 2 || bare.front() != '|') continue;
    const auto fields = split(bare.substr(1, bare.size() - 2), '|');
    if (fields.size() != 3) continue;
    if (auto status = first_row(fields)) {
      open = std::move(status);
    } else if (open && second_row(fields, *open) && all.size() < kMostDevices) {
      open->driver = version;
      all.push_back(*open);
      open.reset();
    }
  }
  return all;
}

std::string npu_smi_version(std::string_view text) {
  const size_t at = text.find("npu-smi ");
  if (at == std::string_view::npos || at > 4096) return "";
  const std::string line = plain_line(text.substr(at + 8, text.substr(at).find('\n')), 80);
  const auto found = words(line);
  return found.empty() ? "" : std::string(found[0]);
}

std::vector<Status> parse_nvidia_csv(std::string_view text) {
  std::vector<Status> all;
  for (const auto& line : lines(text)) {
    const auto fields = split(line, ',');
    if (fields.size() < 8 || !whole(fields[0]) || all.size() >= kMostDevices) continue;
    Status s;
    s.index = static_cast<int>(*whole(fields[0]));
    s.name = fields[1], s.driver = fields[7];
    s.power_w = measure(fields[2]), s.temperature_c = measure(fields[3]), s.utilisation = measure(fields[4]);
    if (const double total = measure(fields[5]); total >= 0) s.memory_total = static_cast<int64_t>(total) * kMegabyte;
    if (const double used = measure(fields[6]); used >= 0) s.memory_used = static_cast<int64_t>(used) * kMegabyte;
    const double faults = fields.size() > 8 ? measure(fields[8]) : -1;
    s.health = faults > 0 ? str("Warning (", static_cast<int64_t>(faults), " uncorrected memory errors)") : "OK";
    all.push_back(std::move(s));
  }
  return all;
}

Topology parse_topology(std::string_view text) {
  Topology t;
  std::vector<bool> is_device;  // of each column
  std::string_view kind;
  bool legend = false;
  for (const auto& line : lines(text)) {
    const auto row = words(line);
    if (row.empty()) continue;
    if (line.find("Legend") != std::string::npos) {
      legend = true;
    } else if (legend) {
      if (row.size() >= 3 && row[1] == "=" && t.legend.size() < 64)
        t.legend.emplace_back(link_word(row[0]),
                              std::string(trimmed(std::string_view(line).substr(line.find('=') + 1))).substr(0, 200));
    } else if (is_device.empty()) {  // the header
      for (const char* each : {"NPU", "GPU", "Phy-ID"})
        if (device_word(row[0], each)) kind = each;
      if (kind.empty()) continue;
      for (const auto word : row) {  // columns end at "CPU Affinity"
        if (word == "CPU" || is_device.size() > kMostDevices) break;
        is_device.push_back(device_word(word, kind));
      }
    } else if (device_word(row[0], kind) && row.size() > is_device.size() && t.names.size() < kMostDevices) {
      t.names.emplace_back(row[0]);
      auto& links = t.link.emplace_back();
      for (size_t i = 0; i < is_device.size(); ++i)
        if (is_device[i]) links.push_back(link_word(row[i + 1]));
      const size_t after = is_device.size() + 1;
      t.cpu_affinity.emplace_back(after < row.size() && core_list(row[after]) ? row[after] : "");
    }
  }
  for (auto& row : t.link) row.resize(t.names.size(), "NA");  // as many columns as rows, whatever came
  return t;
}

}  // namespace apus
