// SPDX-License-Identifier: Apache-2.0
#include "cli/selftest.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/nearest.h"
#include "cli/heavy.h"
#include "cli/program.h"
#include "doctor/failures.h"
#include "doctor/isolated.h"

namespace apus {

namespace {

using CheckState = Check::State;
constexpr int kSteps = 20;
// Of losses between 1 and 10, in f32: at the first step, and as much more at every further one, as the weights part.
constexpr double kSameLoss = 1e-2;

// Each part runs in a process of its own: a vendor's library may crash or hang, and the others still count.
Isolated apart(const SelfTest& spec, const std::function<std::string()>& work) {
  return run_isolated(work, spec.limit_s);
}

Check failed_part(const std::string& what, const SelfTest& spec, const Isolated& outcome) {
  Check check{what, CheckState::Fail, "", "", "the report holds the whole text; `apus doctor --explain -` knows some"};
  const std::string said =
      plain_line(outcome.said.substr(outcome.said.size() - std::min<size_t>(outcome.said.size(), 600)));
  if (outcome.end == Isolated::End::Hung)
    check.found = str("no end after ", spec.limit_s, " s", said.empty() ? "" : ": ", said);
  else
    check.found = str(outcome.signal ? str("crashed (", ::strsignal(outcome.signal), ")") : "failed",
                      said.empty() ? "" : ": ", said);
  return check;
}

// One command of this program; what it wrote when it did not end well.
bool run_part(const SelfTest& spec, const std::string& what, std::vector<std::string> argv, Json& report,
              std::vector<Check>& checks) {
  argv.insert(argv.begin(), "apus");
  const Isolated outcome = apart(spec, [&] {
    require(run_program(argv) == 0, Fault::Device, "`", join(argv, " "), "` failed");
    return std::string("done");
  });
  if (outcome.end == Isolated::End::Done) return true;
  report["failures"].push_back({{"part", what}, {"command", join(argv, " ")}, {"said", outcome.said}});
  checks.push_back(failed_part(what, spec, outcome));
  return false;
}

void try_operators(const SelfTest& spec, Json& report, std::vector<Check>& checks) {
  const Isolated outcome = apart(spec, [&] {
    Json found;
    const OperatorTrial trial{spec.device, &found};
    run_heavy("selftest", &trial);
    return json_text(found);
  });
  if (outcome.end != Isolated::End::Done) {
    report["failures"].push_back({{"part", "operators"}, {"said", outcome.said}});
    checks.push_back(failed_part("operators", spec, outcome));
    return;
  }
  report.update(parse_json(outcome.text, "self-test", Fault::Bug));
  size_t right = 0;
  std::vector<std::string> native;
  for (const Json& row : report["operators"]) {
    if (row.contains("by") && std::find(native.begin(), native.end(), row["op"]) == native.end())
      native.push_back(row["op"]);
    if (row["right"].get<bool>()) {
      ++right;
      continue;
    }
    const std::string name = str(row["op"].get<std::string>(), " ", row["type"].get<std::string>());
    checks.push_back(
        {name, CheckState::Fail,
         row.contains("said") ? row["said"].get<std::string>() : str("differs by ", row["error"].get<double>()),
         str("the processor's within ", row["limit"].get<double>()),
         str(row["case"].get<std::string>().empty() ? "" : str("in the case: ", row["case"].get<std::string>(), ". "),
             row.contains("by")
                 ? str("APUS_REFERENCE_OPS=", row["op"].get<std::string>(), " computes without the vendor's")
                 : "no operator of the vendor's own: plain products and sums go wrong here")});
  }
  checks.insert(checks.begin(), {"operators", right == report["operators"].size() ? CheckState::Ok : CheckState::Fail,
                                 str(right, " of ", report["operators"].size(), " right on ",
                                     report["device"].get<std::string>(), " (", report["name"].get<std::string>(), ")",
                                     native.empty() ? "" : str("; the vendor's: ", join(native))),
                                 "", ""});
}

std::vector<double> losses_of(const std::filesystem::path& log) {
  std::vector<double> losses;
  std::istringstream lines(read_file(log, 16 << 20));
  for (std::string line; std::getline(lines, line);)
    if (const Json row = parse_json(line, log.string(), Fault::Bug); row.contains("loss") && row["loss"].is_number())
      losses.push_back(row["loss"].get<double>());
  return losses;
}

std::vector<std::string> answers_of(const std::filesystem::path& file) {
  std::vector<std::string> answers;
  std::istringstream lines(read_file(file, 16 << 20));
  for (std::string line; std::getline(lines, line);)
    answers.push_back(parse_json(line, file.string(), Fault::Bug).value("response", ""));
  return answers;
}

// The same steps from the same weights on both. The processor's last weights stay for decoding.
bool try_training(const SelfTest& spec, Json& report, std::vector<Check>& checks) {
  for (const bool mine : {false, true}) {
    const std::string device = mine ? spec.device : "cpu";
    const auto out = spec.folder / (mine ? "device" : "cpu");
    if (!run_part(spec, str("training on ", device),
                  {"sft",
                   "--model",
                   spec.folder / "model",
                   "--dataset",
                   spec.folder / "rows.jsonl",
                   "--output_dir",
                   out,
                   "--device",
                   device,
                   "--tuner_type",
                   "full",
                   "--torch_dtype",
                   "float32",
                   "--learning_rate",
                   "3e-3",
                   "--max_steps",
                   std::to_string(kSteps),
                   "--per_device_train_batch_size",
                   "3",
                   "--gradient_accumulation_steps",
                   "1",
                   "--logging_steps",
                   "1",
                   "--add_version",
                   "false",
                   "--split_dataset_ratio",
                   "0",
                   "--save_strategy",
                   "steps",
                   "--save_steps",
                   std::to_string(kSteps)},
                  report, checks))
      return false;
    report["losses"][mine ? "device" : "cpu"] = losses_of(out / "logging.jsonl");
  }
  const auto cpu = report["losses"]["cpu"].get<std::vector<double>>(),
             device = report["losses"]["device"].get<std::vector<double>>();
  bool same = cpu.size() == device.size() && cpu.size() >= kSteps;
  double worst = 0;
  for (size_t i = 0; i < std::min(cpu.size(), device.size()); ++i) {
    const double apart_by = std::abs(cpu[i] - device[i]);
    worst = std::max(worst, apart_by);
    same = same && apart_by <= kSameLoss * static_cast<double>(i + 1);
  }
  checks.push_back({"training", same ? CheckState::Ok : CheckState::Fail,
                    str(kSteps, " steps, loss ", cpu.empty() ? 0 : cpu.front(), " to ", cpu.empty() ? 0 : cpu.back(),
                        "; losses differ by at most ", worst),
                    same ? "" : str("the processor's losses within ", kSameLoss, ", and as much more each step"),
                    same ? "" : "is an operator wrong above? Else the optimizer or the loss is"});
  return true;
}

// What the model learned, asked again: on the processor in f32; on the device in f32 and, as in use, in two bytes.
void try_decoding(const SelfTest& spec, Json& report, std::vector<Check>& checks) {
  const auto weights = spec.folder / "cpu" / str("checkpoint-", kSteps);
  const auto ask = [&](const std::string& device, const std::string& type, const std::string& name) {
    const auto file = spec.folder / (name + ".jsonl");
    if (!run_part(spec, str("decoding on ", device, " in ", type),
                  {"infer", "--model", weights, "--device", device, "--torch_dtype", type, "--val_dataset",
                   spec.folder / "rows.jsonl", "--result_path", file, "--max_new_tokens", "24", "--temperature", "0",
                   "--max_model_len", "256", "--resume", "false"},
                  report, checks))
      return false;
    report["answers"][name] = answers_of(file);
    return true;
  };
  if (!ask("cpu", "float32", "cpu")) return;
  for (const char* type : {"float32", "bfloat16"}) {
    const std::string name = str("device ", type);
    if (!ask(spec.device, type, name)) continue;
    const bool same = report["answers"][name] == report["answers"]["cpu"];
    checks.push_back(
        {str("decoding, ", type), same ? CheckState::Ok : CheckState::Fail,
         str(report["answers"][name].size(), " answers, ", same ? "the processor's" : "not the processor's"), "",
         same ? "" : "the report holds both; is paged_attention wrong above?"});
  }
}

}  // namespace

std::vector<Check> selftest(const SelfTest& spec, Json& report) {
  std::vector<Check> checks;
  report["failures"] = Json::array();
  std::filesystem::create_directories(spec.folder);
  try_operators(spec, report, checks);
  std::string rows;
  for (const char* pair : {"two and two|four", "the sky|blue", "a cat|says meow"}) {
    const std::string text = pair;
    const size_t bar = text.find('|');
    rows += json_text(Json{{"messages",
                            {{{"role", "user"}, {"content", text.substr(0, bar)}},
                             {{"role", "assistant"}, {"content", text.substr(bar + 1)}}}}}) +
            "\n";
  }
  write_file_atomic(spec.folder / "rows.jsonl", rows);
  if (run_part(spec, "a small model",
               {"init", "--preset", "tiny", "--output_dir", spec.folder / "model", "--torch_dtype", "float32", "--seed",
                "3"},
               report, checks) &&
      try_training(spec, report, checks))
    try_decoding(spec, report, checks);
  std::error_code ignored;
  std::filesystem::remove_all(spec.folder, ignored);
  return checks;
}

}  // namespace apus
