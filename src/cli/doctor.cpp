// SPDX-License-Identifier: Apache-2.0
// `apus doctor`: is this machine sound, and if not, what to do; and what a log says about a failure.
#include "cli/doctor.h"

#include <cstdio>

#include "advise/explain_report.h"
#include "base/log.h"
#include "cli/command.h"

namespace apus {

void DoctorOptions::fields(OptionTable& v) {
  v.group("Doctor");
  v("explain", explain, "explain the known failures in this log instead (-: standard input)");
  v("json", json, "print JSON");
  v("trial", trial, "multiply small matrices on each device and compare with the cpu");
  v("trial_timeout", trial_timeout, "seconds after which the trial counts as hanging").at_least(1);
  v("comm", comm, "measure every collective between all devices");
  v("output_dir", output_dir, "the folder whose disk is looked at");
  v("root", root, "look at the machine whose files are below this folder");
  RunOptions::fields(v);
}

void DoctorOptions::check() const {
  require(!comm, Fault::Usage, "--comm is not possible yet: this version starts no processes on several devices");
}

namespace {
int explain(const DoctorOptions& options) {
  const Explanation explanation = explain_log(options.explain);
  const std::string text = options.json ? json_text(to_json(explanation), 2) + "\n"
                                        : explanation_text(explanation, options.explain, Paint::for_output(), Log::of().width());
  std::fputs(text.c_str(), stdout);
  return 0;
}

int run(const DoctorOptions& options) { return explain(options); }
const RegisterCommand<DoctorOptions> command({.name = "doctor", .group = "Machine",
    .summary = "is this machine sound, and what to do if not; --explain LOG: what a failure means",
    .examples = {"doctor", "doctor --json", "doctor --explain train.log", "doctor --explain - < train.log"}}, run);
}  // namespace

}  // namespace apus
