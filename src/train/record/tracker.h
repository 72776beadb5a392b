// SPDX-License-Identifier: Apache-2.0
// Offline run folders of services that show training runs: their own clients send them when asked to, nothing is sent
// here. Each service is a file of trackers/, registered under the name that --report_to knows it by.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/registry.h"

namespace apus {

struct TrackedRun {
  std::filesystem::path dir;  // of the training run, in which the service's folder is made
  std::string project;
  std::string name;
  Json settings;  // an object
};

class Tracker {
 public:
  virtual ~Tracker() = default;
  virtual void scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values) = 0;
  virtual void finish() = 0;
  virtual std::string sync_command() const = 0;
};

struct TrackerKind {
  std::string folder;  // within the run's own
  std::unique_ptr<Tracker> (*make)(const TrackedRun& run);
};

struct RegisterTracker {
  RegisterTracker(const char* name, TrackerKind kind) { Registry<TrackerKind>::of().add(name, std::move(kind)); }
};

std::vector<std::string> tracker_names();
const TrackerKind& tracker_kind(const std::string& service);

// What these services have in common. Eight letters and digits, as they call runs.
std::string new_run_id();
// The protocol buffer of this moment.
std::string wire_timestamp();
// A new folder of a run: <dir>/<parent>/<kind>-<time>-<id>, with what its client looks for in it.
std::filesystem::path tracked_folder(const std::filesystem::path& dir, const std::string& parent,
                                     const std::string& kind, const std::string& id);

}  // namespace apus
