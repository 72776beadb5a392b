// SPDX-License-Identifier: Apache-2.0
// `apus doctor`: is this machine sound, and if not, what to do; and what a log says about a failure.
#include "cli/doctor.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/rehearsal.h"
#include "cli/selftest.h"
#include "dist/launch/launcher.h"
#include "doctor/checks.h"
#include "doctor/comm_checks.h"
#include "doctor/device_words.h"
#include "doctor/explain_report.h"
#include "doctor/inventory.h"
#include "doctor/isolated.h"

namespace apus {

void DoctorOptions::fields(OptionTable& v) {
  v.group("Doctor");
  v("explain", explain, "explain the known failures in this log instead (-: standard input)");
  v("json", json, "print JSON");
  v("trial", trial, "multiply small matrices on each device and compare with the cpu")
      .shown_default("true, with --root false");
  v("trial_timeout", trial_timeout, "seconds after which the trial, or a part of the self-test, counts as hanging")
      .at_least(1);
  v("comm", comm, "start one process a device; check and measure every collective and every pair");
  v("selftest", selftest,
    "hold a device against the cpu: every operator, a few training steps, decoded answers; writes --report");
  v("report", report, "for --selftest: the file with all that was seen, to be sent to who can read it");
  v("device", device,
    str("for --comm: ", join(device_words()), "; for --selftest also one of them: ", device_words().front(), ":3"))
      .shown_default("the first that is here")
      .alias("comm_device");
  v("comm_ranks", comm_ranks, "for --comm: processes")
      .at_least(0)
      .at_most(1024)
      .shown_default("one a device, 2 on the cpu");
  v("comm_timeout", comm_timeout, "for --comm: seconds after which a silent process is named and the check ends")
      .above(0)
      .at_most(86400);
  v("output_dir", output_dir, "a folder whose disk is looked at too");
  v("root", root, "look at the machine whose files are below this folder");
  common.fields(v);
}

void DoctorOptions::check() const {
  require(!comm || device.find(':') == std::string::npos, Fault::Usage, "--device ", device,
          ": --comm takes a kind of device without a number");
  require(comm || selftest || device == "auto", Fault::Usage, "--device ", device,
          " says which device --comm or --selftest are for, and neither is asked for");
  require(!selftest || root == "/", Fault::Usage,
          "--selftest computes on this machine: it cannot be combined with --root");
  require(!selftest || !report.empty(), Fault::Usage, "--report names no file");
  require(!comm || root == "/", Fault::Usage, "--comm runs on this machine: it cannot be combined with --root");
}

void DoctorOptions::rehearse(Rehearsal& r) const {
  if (!explain.empty() && explain != "-") {
    const MappedFile log(explain);
    r.right("log", str(explain, ": ", bytes_text(log.size())));
  }
  if (root != "/") this_machine(root), r.right("root", root);
  if (selftest) r.output(report);
}

namespace {
int explain(const DoctorOptions& options) {
  const Explanation explanation = explain_log(options.explain);
  const std::string text = options.json
                               ? json_text(to_json(explanation), 2) + "\n"
                               : explanation_text(explanation, options.explain, Paint::for_output(), Log::of().width());
  std::fputs(text.c_str(), stdout);
  return 0;
}

// A trial in a process of its own: the tensor library may be absent, and a vendor's library may crash or hang.
std::vector<Check> trial(const DoctorOptions& options) {
  using State = Check::State;
  const Isolated outcome = run_isolated(
      [] {
        std::vector<Check> checks;
        const DeviceTrials request{&checks};
        try {
          run_heavy("doctor", &request);
        } catch (const Error& error) {
          checks.push_back({"libapus.so", State::Fail, error.what(), "the tensor library, loaded",
                            "build again after an update of torch; see the section torch"});
        }
        return json_text(to_json(std::vector<Section>{{"Trial", checks}}));
      },
      static_cast<double>(options.trial_timeout));
  const std::string said =
      plain_line(outcome.said.substr(outcome.said.size() - std::min<size_t>(outcome.said.size(), 400)));
  if (outcome.end == Isolated::End::Hung)
    return {{"trial", State::Fail, str("no end after ", options.trial_timeout, " s: the driver or a library hangs"),
             "a result",
             "`npu-smi info`, nvidia-smi and dmesg tell whether a device is stuck; --device cpu works without it"}};
  if (outcome.end == Isolated::End::Crashed)
    return {{"trial", State::Fail,
             str("a library crashed", outcome.signal ? str(" (", ::strsignal(outcome.signal), ")") : "",
                 said.empty() ? "" : ": " + said),
             "a result", "libraries of different versions are mixed: compare the sections torch, Ascend and NVIDIA"}};
  return checks_from_json(parse_json(outcome.text, "trial", Fault::Bug));
}

// Which kind --comm uses, and how many there are; without the tensor library.
std::pair<std::string, int> comm_devices(const DoctorOptions& options, const Host& host) {
  for (const auto& group : inventory(host)) {
    if (group.devices.empty() || (options.device != "auto" && options.device != group.kind)) continue;
    const std::string list = host.variable(visibility_variable(group.kind));
    const auto listed = static_cast<int>(std::count(list.begin(), list.end(), ',')) + 1;
    const int count = group.kind == "cpu" ? 2 : list.empty() ? static_cast<int>(group.devices.size()) : listed;
    return {group.kind, options.comm_ranks > 0 ? static_cast<int>(options.comm_ranks) : count};
  }
  return {options.device, options.comm_ranks > 0 ? static_cast<int>(options.comm_ranks) : 2};
}

// The collectives are measured by the command comm-check, one process a device, under the launcher.
std::vector<Check> communicate(const DoctorOptions& options, const Host& host) {
  using State = Check::State;
  const auto [kind, ranks] = comm_devices(options, host);
  if (ranks < 2)
    return {{"communication", State::Skipped, str("one ", kind, " device: nothing to communicate with"), "", ""}};
  const auto folder = std::filesystem::temp_directory_path() / str("apus-doctor-", ::getpid());
  const auto report = folder / "comm.json";
  const Launch plan{.plan = {.ranks = ranks},
                    .argv = {"apus", "comm-check", "--device", kind, "--output", report.string(), "--ddp_timeout",
                             str(options.comm_timeout)},
                    .log_dir = folder};
  const Isolated outcome = run_isolated([&] { return std::to_string(launch(plan)); }, 300 + 2 * options.comm_timeout);
  std::error_code code;
  std::vector<Check> checks{{"ranks", State::Ok, str(ranks, " processes on ", kind), "", ""}};
  if (std::filesystem::exists(report, code)) {
    for (Check& check : comm_checks(parse_json(read_file(report), report.string(), Fault::Bug)))
      checks.push_back(std::move(check));
    std::filesystem::remove_all(folder, code);
  } else {
    checks.push_back(comm_failure(outcome.said, folder.string()));
  }
  return checks;
}

// What the trial measured replaces what was only read from files.
void add_trial(std::vector<Section>& sections, std::vector<Check> checks) {
  for (auto& section : sections)
    std::erase_if(section.checks, [&](const Check& c) {
      return std::any_of(checks.begin(), checks.end(),
                         [&](const Check& t) { return t.what == c.what && t.state != Check::State::Skipped; });
    });
  sections.push_back({"Trial", std::move(checks)});
}

// The report has the machine's sections beside the self-test's numbers.
std::vector<Check> try_itself(const DoctorOptions& options, const std::vector<Section>& machine) {
  Json report{{"apus", APUS_VERSION}, {"machine", to_json(machine)}};
  std::vector<Check> checks =
      selftest({.device = options.device,
                .limit_s = static_cast<double>(options.trial_timeout),
                .folder = std::filesystem::temp_directory_path() / str("apus-selftest-", ::getpid())},
               report);
  report["checks"] = to_json(std::vector<Section>{{"Self-test", checks}});
  write_file_atomic(options.report, json_text(report, 1) + "\n");
  checks.push_back({"report", Check::State::Ok, options.report, "", ""});
  return checks;
}

int run(const DoctorOptions& options) {
  if (!options.explain.empty()) return explain(options);
  const Host host = this_machine(options.root);
  auto sections = all_checks(host, {.output_dir = options.output_dir});
  if (options.trial.value_or(options.root == "/")) add_trial(sections, trial(options));
  if (options.selftest) sections.push_back({"Self-test", try_itself(options, sections)});
  if (options.comm) sections.push_back({"Communication", communicate(options, host)});
  const std::string text = options.json ? json_text(to_json(sections), 2) + "\n"
                                        : checks_text(sections, Paint::for_output(), Log::of().width());
  std::fputs(text.c_str(), stdout);
  return sound(sections) ? 0 : exit_code(Fault::Device);
}
const RegisterCommand<DoctorOptions> doctor_command(
    {.name = "doctor",
     .group = "Machine",
     .summary = "is this machine sound, and what to do if not; --explain LOG: what a failure means",
     .examples = {"doctor", "doctor --json", "doctor --selftest true --device npu:0", "doctor --explain train.log",
                  "doctor --explain - < train.log"}},
    run);
}  // namespace

}  // namespace apus
