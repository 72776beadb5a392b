// SPDX-License-Identifier: Apache-2.0
// `apus doctor`: is this machine sound, and if not, what to do; and what a log says about a failure.
#include "cli/doctor.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "advise/checks.h"
#include "advise/explain_report.h"
#include "advise/isolated.h"
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

// A trial in a process of its own: the tensor library may be absent, and a vendor's library may crash or hang.
std::vector<Check> trial(const DoctorOptions& options) {
  using State = Check::State;
  const Isolated outcome = run_isolated([] {
    std::vector<Check> checks;
    const DeviceTrials request{&checks};
    try {
      run_heavy("doctor", &request);
    } catch (const Error& error) {
      checks.push_back({"libapus.so", State::Fail, error.what(), "the tensor library, loaded", "build again after an update of torch; see the section torch"});
    }
    return json_text(to_json(std::vector<Section>{{"Trial", checks}}));
  }, static_cast<double>(options.trial_timeout));
  const std::string said = plain_line(outcome.said.substr(outcome.said.size() - std::min<size_t>(outcome.said.size(), 400)));
  if (outcome.end == Isolated::End::Hung)
    return {{"trial", State::Fail, str("no end after ", options.trial_timeout, " s: the driver or a library hangs"), "a result",
             "`npu-smi info`, nvidia-smi and dmesg tell whether a device is stuck; --device cpu works without it"}};
  if (outcome.end == Isolated::End::Crashed)
    return {{"trial", State::Fail, str("a library crashed", outcome.signal ? str(" (", ::strsignal(outcome.signal), ")") : "", said.empty() ? "" : ": " + said), "a result",
             "libraries of different versions are mixed: compare the sections torch, Ascend and NVIDIA"}};
  return checks_from_json(parse_json(outcome.text, "trial", Fault::Bug));
}

// What the trial measured replaces what was only read from files.
void add_trial(std::vector<Section>& sections, std::vector<Check> checks) {
  for (auto& section : sections)
    std::erase_if(section.checks, [&](const Check& c) {
      return std::any_of(checks.begin(), checks.end(), [&](const Check& t) { return t.what == c.what && t.state != Check::State::Skipped; });
    });
  sections.push_back({"Trial", std::move(checks)});
}

int run(const DoctorOptions& options) {
  if (!options.explain.empty()) return explain(options);
  auto sections = all_checks(this_machine(options.root), {.output_dir = options.output_dir});
  if (options.trial && options.root == "/") add_trial(sections, trial(options));
  const std::string text = options.json ? json_text(to_json(sections), 2) + "\n" : checks_text(sections, Paint::for_output(), Log::of().width());
  std::fputs(text.c_str(), stdout);
  return sound(sections) ? 0 : exit_code(Fault::Device);
}
const RegisterCommand<DoctorOptions> command({.name = "doctor", .group = "Machine",
    .summary = "is this machine sound, and what to do if not; --explain LOG: what a failure means",
    .examples = {"doctor", "doctor --json", "doctor --explain train.log", "doctor --explain - < train.log"}}, run);
}  // namespace

}  // namespace apus
