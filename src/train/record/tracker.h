// SPDX-License-Identifier: Apache-2.0
// Offline run folders of services that show training runs (wandb, swanlab): their own clients send them when asked to,
// nothing is sent here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

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

std::vector<std::string> tracker_names();
std::unique_ptr<Tracker> make_tracker(const std::string& service, const TrackedRun& run);

}  // namespace apus
