// SPDX-License-Identifier: Apache-2.0
#include "doctor/explain_report.h"

#include <algorithm>

#include "base/wrap.h"

namespace apus {

namespace {
std::string one_finding(const Finding& f, size_t number, const Paint& paint, size_t width) {
  std::string out =
      str(paint.bold(str(number, ". ", f.failure->title)), "  ", paint.dim(str("[", f.failure->id, "]")), "\n");
  const std::string times = f.count > 1 ? str(", ", f.count, " times") : "";
  out += str("   ", paint.dim(str("line ", f.line, times, ":")), " ", f.text.substr(0, 200),
             f.text.size() > 200 ? "..." : "", "\n");
  out += wrapped(str("why: ", f.failure->cause), 3, 8, width);
  for (const auto& step : f.failure->remedy)
    out += &step == &f.failure->remedy[0] ? wrapped("do: - " + step, 3, 9, width) : wrapped("- " + step, 7, 9, width);
  return out;
}
}  // namespace

std::string explanation_text(const Explanation& e, const std::string& path, const Paint& paint, int width_given) {
  const auto width = static_cast<size_t>(std::clamp(width_given, 60, 130));
  const std::string name = path == "-" ? "standard input" : path;
  const std::string read =
      str(e.lines, " lines", e.middle_skipped ? " (the first GiB and the last 12 MB were looked at)" : "");
  std::string out;
  if (!e.findings.empty()) {
    out = str(name, ", ", read, ": ", e.findings.size(),
              e.findings.size() == 1 ? " known failure" : " known failures, best match first", "\n\n");
    for (size_t i = 0; i < e.findings.size(); ++i) out += one_finding(e.findings[i], i + 1, paint, width) + "\n";
    return out;
  }
  out = str(name, ", ", read, ": ", paint.bold("no known failure in it"), "\n");
  if (!e.error_lines.empty()) out += "\nThe last lines that speak of an error:\n";
  for (const auto& line : e.error_lines) out += str("  ", line, "\n");
  out += "\nTo find the cause, gather:\n";
  for (const char* step :
       {"the whole log of the rank that failed first, not of rank 0 only (output/*/logs, or the launcher's folder)",
        "on an NPU: the newest files of ~/ascend/log/debug/plog, and the ERROR lines in them",
        "the output of `apus doctor --json`, and of `apus --version`",
        "the command line, and whether `--device cpu` shows the same"})
    out += wrapped(str("- ", step), 2, 4, width);
  return out;
}

}  // namespace apus
