// SPDX-License-Identifier: Apache-2.0
// Where the host waits for the simulated NPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace sim {

// Copies to the host that were asked not to wait: they arrive when the host waits for something. Until then there are
// other bytes in their place.
class LateCopies {
 public:
  void add(const at::Tensor& value, const at::Tensor& target) {
    const std::lock_guard lock(mutex_);
    std::memset(target.data_ptr(), 0xff, target.nbytes());
    copies_.emplace_back(value.clone(), target);
  }
  void arrive() {
    const std::lock_guard lock(mutex_);
    for (auto& [value, target] : std::exchange(copies_, {})) target.copy_(value);
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

inline LateCopies& late_copies() {
  static auto* const all = new LateCopies;  // never destroyed: the tensor library may be gone by then
  return *all;
}

// How often, by the operator; written to the file that APUS_SIM_WAITS names when the process ends. Copies wait unless
// they are asked not to, and so does what tells the host a number, or a size that depends on numbers. An event waits
// for what was asked for before it alone; "event_behind": more was asked for by then, so that the device went on.
class Waits {
 public:
  ~Waits() {
    const char* file = std::getenv("APUS_SIM_WAITS");
    if (!file) return;
    std::ofstream out(file);
    for (const auto& [what, count] : counts_) out << what << ' ' << count << '\n';
  }
  __attribute__((noinline)) void add(const std::string& what) {
    late_copies().arrive();
    const std::lock_guard lock(mutex_);
    ++counts_[what];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int64_t> counts_;
};

}  // namespace sim
