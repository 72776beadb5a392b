// SPDX-License-Identifier: Apache-2.0
#include "doctor/smi.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "doctor/failures.h"
#include "doctor/smi_fields.h"

namespace apus {

using smi::bar_fields, smi::kMegabyte, smi::kMostDevices, smi::last_usage, smi::lines, smi::measure, smi::trimmed,
    smi::whole, smi::words;

namespace {
constexpr size_t kLongestLink = 32;

bool chip_name(std::string_view word) {
  return std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isalpha(c); }) ||
         word.find("910") != std::string_view::npos || word.find("310") != std::string_view::npos;
}

bool bus_id(std::string_view field) {  // "0000:C1:00.0", or "NA" where the bus is none of PCI
  return field.find(':') != std::string_view::npos || field == "NA" || field == "N/A";
}

// First row of a device: "0  910B3 | OK | 101.8  43  0 / 0".
std::optional<Status> first_row(const std::vector<std::string_view>& fields) {
  const auto id = words(fields[0]), readings = words(fields[2]);
  if (id.size() < 2 || !whole(id[0]) || !chip_name(id[1]) || readings.size() < 2) return std::nullopt;
  if (fields[1].find(':') != std::string_view::npos) return std::nullopt;
  Status s;
  s.index = static_cast<int>(*whole(id[0]));
  s.name = trimmed(fields[0].substr(id[0].size())), s.health = fields[1];
  s.power_w = measure(readings[0]), s.temperature_c = measure(readings[1]);
  return s;
}

// Second row: "0 | 0000:C1:00.0 | 0  0 / 0  3318 / 65536"; with two numbers first, the second is the device's own.
bool second_row(const std::vector<std::string_view>& fields, Status& s) {
  const auto id = words(fields[0]), readings = words(fields[2]);
  if (id.size() > 2 || readings.empty() || (id.empty() && !bus_id(fields[1]))) return false;
  for (const auto each : id)
    if (!whole(each)) return false;
  if (id.size() == 2) s.index = static_cast<int>(*whole(id[1]));
  s.utilisation = measure(readings[0]);
  if (const auto memory = last_usage(fields[2])) {
    s.memory_total = memory->total * kMegabyte;
    if (memory->used >= 0) s.memory_used = memory->used * kMegabyte;
  }
  return true;
}

bool device_word(std::string_view word, std::string_view kind) {
  return word.size() > kind.size() && word.starts_with(kind) && whole(word.substr(kind.size()));
}

std::string link_word(std::string_view word) { return std::string(word.substr(0, kLongestLink)); }

std::string_view device_kind(std::string_view word) {
  for (const char* each : {"NPU", "GPU", "Phy-ID"})
    if (device_word(word, each)) return each;
  return "";
}

bool core_list(std::string_view word) {
  return !word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) &&
         word.find_first_not_of("0123456789-,") == std::string_view::npos;
}

// Behind the devices' columns come network cards' words, whose number cannot be relied on (neighbours run together),
// then the cores: "0-23", "0-23, 48-71", or "N/A", before numbers of NUMA nodes.
std::string affinity_after(const std::vector<std::string_view>& row, size_t last_device) {
  size_t i = last_device + 1;
  while (i < row.size() && !core_list(row[i]) && row[i] != "N/A") ++i;
  if (i >= row.size() || row[i] == "N/A") return "";
  std::string cores(row[i]);
  while (cores.back() == ',' && i + 1 < row.size() && core_list(row[i + 1])) cores += row[++i];
  return cores.substr(0, 256);
}
}  // namespace

std::vector<Status> parse_npu_smi(std::string_view text) {
  std::vector<Status> all;
  const std::string version = npu_smi_version(text);
  std::optional<Status> open;  // its first row has been read
  for (const auto& line : lines(text)) {
    if (line.find("Process id") != std::string::npos || line.find("No running processes") != std::string::npos) break;
    auto fields = bar_fields(line);
    std::string joined;
    if (fields.size() == 4) {  // of the 950: number and name have a field each
      joined = str(fields[0], " ", fields[1]);
      fields = {trimmed(joined), fields[2], fields[3]};
    }
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
  if (at > 4096) return "";
  const std::string line = plain_line(text.substr(at + 8, text.substr(at).find('\n')), 80);
  const auto found = words(line);
  return found.empty() ? "" : std::string(found[0]);
}

Topology parse_topology(std::string_view text) {
  Topology t;
  std::vector<size_t> columns;  // those of devices; the first of all is 1
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
    } else if (columns.empty()) {
      kind = device_kind(row[0]);
      if (kind.empty() || (row.size() > 1 && row[1] == "X")) continue;  // a row before the header belongs to no matrix
      for (size_t i = 0; i < row.size() && row[i] != "CPU"; ++i)
        if (device_word(row[i], kind) && columns.size() < kMostDevices) columns.push_back(i + 1);
    } else if (device_word(row[0], kind) && row.size() > columns.back() && t.names.size() < kMostDevices) {
      t.names.emplace_back(row[0]);
      auto& links = t.link.emplace_back();
      for (const size_t column : columns) links.push_back(link_word(row[column]));
      t.cpu_affinity.push_back(affinity_after(row, columns.back()));
    }
  }
  for (auto& row : t.link) row.resize(t.names.size(), "NA");  // as many columns as rows, whatever came
  return t;
}

}  // namespace apus
