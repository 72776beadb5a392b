// SPDX-License-Identifier: Apache-2.0
// The visible side of a training run: its folder, logging.jsonl, TensorBoard events,
// plots and the log lines of its steps.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "train/record/event_file.h"
#include "train/record/tracker.h"

namespace apus {

// <output_dir>/vN-YYYYMMDD-HHMMSS, N one above the highest there; created.
std::filesystem::path make_version_dir(const std::filesystem::path& output_dir);

// In a run's folder: its answers, a line each.
inline constexpr const char* kCompletionsFile = "completions.jsonl";

std::string spoken_time(double seconds);  // "1h 2m 3s"
double rounded(double value, int digits = 8);

class RunLog {
 public:
  struct Options {
    std::filesystem::path dir;               // the run's folder
    std::filesystem::path events_dir;        // empty: no TensorBoard file
    bool quiet = false;                      // no log lines
    std::vector<std::string> services = {};  // whose folders are written too, of this run
    TrackedRun tracked = {};
  };
  explicit RunLog(Options options);

  // A line of values at `step`; keys starting with "eval_" belong to the evaluation. Text values are shown and written,
  // but not plotted.
  void log(int64_t step, const Json& values);
  void finish(const Json& summary);  // last object of logging.jsonl, and the plots
  void plots() const;                // images/*.svg from all points so far
  // A run goes on from this step: what its folder tells of later ones, which are made again, is taken out, and the
  // points before it are those of the history.
  void go_on_from(int64_t step, const Json& log_history);
  std::filesystem::path images_dir() const { return options_.dir / "images"; }
  std::filesystem::path file() const { return options_.dir / "logging.jsonl"; }

 private:
  void append(const Json& line);
  Options options_;
  std::unique_ptr<EventFile> events_;
  std::vector<std::unique_ptr<Tracker>> trackers_;
  std::map<std::string, std::vector<std::pair<double, double>>> series_;  // tag -> points
};

}  // namespace apus
