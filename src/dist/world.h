// SPDX-License-Identifier: Apache-2.0
// All ranks of a run, connected: which one this is, its device, and the communicators over all of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/signals.h"
#include "device/device.h"
#include "dist/launch/environment.h"

namespace apus {

class CommTrace;  // dist/comm_trace.h

struct WorldSpec {
  std::string device = "auto";  // "npu": each rank of a machine takes the device of its number
  double timeout_s = 1800;      // of every wait
  double meeting_s = 600;       // for all ranks to come
};

class World {
 public:
  explicit World(const WorldSpec& spec, const Lookup& variable = process_environment());
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return environment_.rank; }
  int size() const { return environment_.world; }
  bool first() const { return rank() == 0; }
  const RankEnvironment& environment() const { return environment_; }
  const DeviceChoice& device() const { return device_; }
  Comm& host();                            // for tensors on the host: counts, decisions
  Comm& devices();                         // for tensors on the device
  Store* store() { return store_.get(); }  // null when there is one rank
  int number_mesh() { return meshes_++; }  // all ranks make their meshes in the same order
  std::unique_ptr<Comm> connect(const std::string& group, std::vector<int> ranks, bool on_host = false) const;
  // What the ranks are at, for the report of a wait that was too long: "step 12".
  void at(const std::string& where);

  // Throws on all ranks when the texts differ, with the first line that does; `what` names them.
  void require_same(const std::string& text, const std::string& what,
                    const std::string& advice = "Start all ranks with the same command", Fault fault = Fault::Usage);
  // Runs work; what it throws is left for the other ranks, whose messages then name it.
  template <class F>
  int guard(const F& work) {
    try {
      return work();
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& error) {
      leave_failure(error.what());
      throw;
    }
  }

 private:
  void leave_failure(const std::string& text) noexcept;
  RankEnvironment environment_;
  WorldSpec spec_;
  DeviceChoice device_;
  std::shared_ptr<Store> store_;  // null when there is one rank
  std::unique_ptr<CommTrace> trace_;
  std::unique_ptr<Comm> host_, devices_;
  int meshes_ = 0;
  bool failed_ = false;
};

// The device of this rank: the kind that `wanted` names, and the rank's number on its machine.
DeviceChoice bind_device(const std::string& wanted, const RankEnvironment& environment);

}  // namespace apus
