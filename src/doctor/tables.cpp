// SPDX-License-Identifier: Apache-2.0
#include "doctor/tables.h"

#include <cmath>

#include "base/error.h"
#include "base/table.h"

namespace apus {

namespace {
using Row = std::vector<std::string>;

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}

template <class Colour>
std::string table(const std::vector<Row>& rows, const Paint& paint, Colour colour) {
  return table_text(rows, [&](const std::string& text, const std::string& cell, bool heading) {
    return heading ? paint.bold(cell) : colour(text, cell);
  });
}

std::string rounded(double value, const char* unit) { return value < 0 ? "-" : str(std::lround(value), unit); }

std::string gigabytes(int64_t bytes) {
  if (bytes < 0) return "-";
  const auto tenths = std::lround(static_cast<double>(bytes) / (1 << 30) * 10);
  return str(tenths / 10, ".", tenths % 10);
}
}  // namespace

std::string devices_text(const std::vector<DeviceGroup>& groups, const Paint& paint) {
  std::vector<Row> rows{{"device", "name", "health", "power", "temp", "busy", "memory used / total GiB", "driver"}};
  std::string notes;
  for (const auto& group : groups) {
    for (const Status& s : group.devices) {
      rows.push_back({group.kind == "cpu" ? group.kind : str(group.kind, ":", s.index), s.name, s.health,
                      rounded(s.power_w, " W"), rounded(s.temperature_c, " C"), rounded(s.utilisation, " %"),
                      str(gigabytes(s.memory_used), " / ", gigabytes(s.memory_total)),
                      s.driver.empty() ? "-" : s.driver});
    }
    if (!group.note.empty()) notes += str("  ", group.kind, ": ", group.note, "\n");
  }
  const auto colour = [&](const std::string& text, const std::string& cell) {
    if (text == "OK") return paint.green(cell);
    if (text.starts_with("Warning") || text == "UNKNOWN") return paint.yellow(cell);
    return text == "Alarm" || text == "Critical" ? paint.red(cell) : cell;
  };
  return table(rows, paint, colour) + (notes.empty() ? "" : "\n" + notes);
}

std::string links_text(const std::vector<LinkGroup>& groups, const Paint& paint) {
  std::string out;
  for (const auto& group : groups) {
    const Topology& t = group.topology;
    out += paint.bold(group.kind) + paint.dim(str("  (", group.source, ")")) +
           (group.note.empty() ? "" : "  " + group.note) + "\n";
    if (t.names.empty()) {
      out += "  no matrix of links\n\n";
      continue;
    }
    std::vector<Row> rows{{""}};
    for (const auto& name : t.names) rows[0].push_back(name);
    rows[0].push_back("CPU affinity");
    for (size_t i = 0; i < t.names.size(); ++i) {
      Row& row = rows.emplace_back(Row{t.names[i]});
      row.insert(row.end(), t.link[i].begin(), t.link[i].end());
      row.push_back(i < t.cpu_affinity.size() && !t.cpu_affinity[i].empty() ? t.cpu_affinity[i] : "-");
    }
    out += table(rows, paint, [&](const std::string& text, const std::string& cell) {
      if (text == "SYS" || text == "NA") return paint.yellow(cell);
      return text.starts_with("HCCS") || text.starts_with("NV") || text == "SIO" ? paint.green(cell) : cell;
    });
    if (!t.legend.empty()) out += "\n";
    for (const auto& [word, meaning] : t.legend) out += str("  ", padded(word, 8), " ", meaning, "\n");
    out += "\n";
  }
  return out;
}

}  // namespace apus
