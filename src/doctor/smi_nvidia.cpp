// SPDX-License-Identifier: Apache-2.0
// nvidia-smi: the answer to a query, the table for people, the list of devices with their parts.
#include <algorithm>
#include <optional>

#include "base/error.h"
#include "doctor/smi.h"
#include "doctor/smi_fields.h"

namespace apus {

using smi::bar_fields, smi::kMegabyte, smi::kMostDevices, smi::last_usage, smi::lines, smi::measure, smi::split,
    smi::trimmed, smi::whole, smi::words;

namespace {
std::string health_of(std::string_view faults) {
  if (const double count = measure(faults); count > 0)
    return str("Warning (", static_cast<int64_t>(count), " uncorrected memory errors)");
  return "OK";
}

// A device that fell off the bus answers each question with "[Unknown Error]", "[GPU is lost]", "ERR!".
bool lost(std::string_view text) {
  for (const char* sign : {"ERR!", "Unknown Error", "GPU is lost", "requires reset"})
    if (text.find(sign) != std::string_view::npos) return true;
  return false;
}

// "|   0  NVIDIA A100-SXM4-40GB          On  | 00000000:07:00.0 Off |                   On |"
std::optional<Status> first_nvidia_row(const std::vector<std::string_view>& fields) {
  const auto id = words(fields[0]);
  if (id.size() < 2 || !whole(id[0]) || fields[1].find(':') == std::string_view::npos) return std::nullopt;
  Status s;
  s.index = static_cast<int>(*whole(id[0]));
  std::string_view name = trimmed(fields[0].substr(id[0].size()));
  for (const char* mode : {"On", "Off", "N/A"})  // persistence
    if (id.size() > 2 && id.back() == mode) name = trimmed(name.substr(0, name.size() - id.back().size()));
  s.name = name;
  s.health = lost(fields[0]) ? "Critical (the device does not answer)" : health_of(fields[2]);
  return s;
}

// "| N/A   51C    P0    71W / 250W |     38MiB / 40960MiB |     N/A      Default |"
void second_nvidia_row(const std::vector<std::string_view>& fields, Status& s) {
  for (const auto word : words(fields[0]))
    if (word.ends_with('C') && measure(word) >= 0) s.temperature_c = measure(word);
  const size_t slash = fields[0].rfind(" / ");
  if (const auto before = words(fields[0].substr(0, std::min(slash, fields[0].size())));
      slash != std::string_view::npos && !before.empty())
    s.power_w = measure(before.back());
  if (const auto memory = last_usage(fields[1])) {
    s.memory_total = memory->total * kMegabyte;
    if (memory->used >= 0) s.memory_used = memory->used * kMegabyte;
  }
  if (const auto use = words(fields[2]); !use.empty()) s.utilisation = measure(use[0]);
  if (lost(fields[0]) || lost(fields[1])) s.health = "Critical (the device does not answer)";
}

std::string driver_of(std::string_view text) {
  const std::string_view label = "Driver Version:";
  const size_t at = text.find(label);
  const auto rest =
      at == std::string_view::npos ? std::vector<std::string_view>() : words(text.substr(at + label.size(), 64));
  return rest.empty() ? "" : std::string(rest[0]);
}
}  // namespace

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
    s.health = lost(line) ? "Critical (the device does not answer)" : fields.size() > 8 ? health_of(fields[8]) : "OK";
    all.push_back(std::move(s));
  }
  return all;
}

std::vector<Status> parse_nvidia_table(std::string_view text) {
  std::vector<Status> all;
  const std::string driver = driver_of(text.substr(0, 4096));
  std::optional<Status> open;  // its first row has been read
  for (const auto& line : lines(text)) {
    if (line.find("Processes:") != std::string::npos || line.find("MIG devices:") != std::string::npos) break;
    const auto fields = bar_fields(line);
    if (fields.size() != 3) continue;
    if (auto status = first_nvidia_row(fields)) {
      open = std::move(status);
    } else if (open && all.size() < kMostDevices) {
      second_nvidia_row(fields, *open);
      open->driver = driver;
      all.push_back(*open);
      open.reset();
    }
  }
  return all;
}

std::vector<std::pair<int, std::string>> parse_mig_list(std::string_view text) {
  std::vector<std::pair<int, std::string>> parts;
  int device = -1;
  for (const auto& line : lines(text)) {
    const auto row = words(line);
    if (row.size() < 2 || parts.size() >= kMostDevices) continue;
    if (row[0] == "GPU" && row[1].ends_with(':'))
      device = static_cast<int>(whole(row[1].substr(0, row[1].size() - 1)).value_or(-1));
    else if (row[0] == "MIG" && device >= 0)
      parts.emplace_back(device, std::string(row[1].substr(0, 32)));
  }
  return parts;
}

}  // namespace apus
