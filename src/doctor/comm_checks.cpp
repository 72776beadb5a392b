// SPDX-License-Identifier: Apache-2.0
#include "doctor/comm_checks.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/nearest.h"
#include "doctor/failures.h"

namespace apus {

namespace {
using State = Check::State;
constexpr const char* kLinks =
    "`apus topo` shows the links; on Ascend `hccn_tool -i N -link -g`, on NVIDIA nvidia-smi nvlink -s; also cables, "
    "switch ports, NUMA binding";

std::string two(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

struct Pair {
  size_t one, other;
  double gb_s;
};

std::vector<Pair> pairs_of(const Json& matrix) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < matrix.size(); ++i)
    for (size_t j = i + 1; j < matrix.at(i).size(); ++j) pairs.push_back({i, j, matrix.at(i).at(j).get<double>()});
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.gb_s < b.gb_s; });
  return pairs;
}

Check pairs_check(const std::vector<Pair>& pairs) {
  const double median = pairs[pairs.size() / 2].gb_s;
  Check c{"pairs", State::Ok,
          str(pairs.size(), pairs.size() == 1 ? " pair, " : " pairs, ", two(pairs.front().gb_s), " to ",
              two(pairs.back().gb_s), " GB/s"),
          "", ""};
  std::vector<std::string> slow;
  for (const Pair& p : pairs)
    if (p.gb_s < median / 2 && slow.size() < 8)
      slow.push_back(str("ranks ", p.one, " and ", p.other, " (", two(p.gb_s), " GB/s)"));
  if (slow.empty()) return c;
  c.state = State::Warn, c.found += "; slow: " + join(slow),
  c.wanted = str("about ", two(median), " GB/s, as between the others"), c.hint = kLinks;
  return c;
}
}  // namespace

std::vector<Check> comm_checks(const Json& report) {
  std::vector<Check> checks;
  for (const Json& row : report.at("collectives")) {
    const auto gb_s = row.at("gb_s").get<double>();
    Check& c = checks.emplace_back(
        Check{row.at("name"), State::Ok,
              str(two(row.at("latency_us")), " us", gb_s > 0 ? ", " + two(gb_s) + " GB/s" : ""), "", ""});
    if (row.at("correct").get<bool>()) continue;
    c.state = State::Fail, c.found += str("; ", row.at("wrong").get<std::string>()),
    c.wanted = "the right result on every rank";
    c.hint = str("the library or a link is broken: ", kLinks);
  }
  if (report.contains("pair_gb_s"))
    if (const auto pairs = pairs_of(report.at("pair_gb_s")); !pairs.empty()) checks.push_back(pairs_check(pairs));
  return checks;
}

Check comm_failure(const std::string& said, const std::string& log_dir) {
  std::string errors;
  for (size_t at = 0; at < said.size();) {
    const size_t end = std::min(said.find('\n', at), said.size());
    const std::string line = plain_line(said.substr(at, end - at), 600);
    at = end + 1;
    if (const size_t mark = line.find("[ERROR"); mark != std::string::npos)
      errors += (errors.empty() ? "" : "; ") + line.substr(std::min(line.find(' ', mark) + 1, line.size()));
  }
  return {"communication", State::Fail, errors.empty() ? "the ranks ended without a result" : errors,
          "every collective between all ranks",
          str("the output of the other ranks is in ", log_dir, "; `apus doctor --explain` reads it. ", kLinks)};
}

}  // namespace apus
