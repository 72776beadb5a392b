// SPDX-License-Identifier: Apache-2.0
// What this rank does in which communicator, told to the other ranks through their table. When a wait passes its limit,
// the error says what every rank did then (dist/launch/hang_report.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/comm.h"
#include "device/store.h"

namespace apus {

class CommTrace {
 public:
  struct Spec {
    int rank = 0, ranks = 1;
    double timeout_s = 1800;  // of a wait
    std::shared_ptr<Store> store;
  };
  explicit CommTrace(const Spec& spec);
  ~CommTrace();
  CommTrace(const CommTrace&) = delete;
  CommTrace& operator=(const CommTrace&) = delete;

  void at(const std::string& where);  // "step 12"
  // The same communicator, whose calls are noted. `ranks`: its members.
  std::unique_ptr<Comm> noted(std::unique_ptr<Comm> comm, const std::string& group, std::vector<int> ranks);

 private:
  struct State;
  class NotedComm;
  class NotedWork;
  std::shared_ptr<State> state_;
};

}  // namespace apus
