// SPDX-License-Identifier: Apache-2.0
// A thread on which a communicator's operations run one after the other, each with a handle to wait for.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/comm.h"

namespace apus {

class Lane {
 public:
  // `failure`: what another rank left when it failed, "" while none did; who waits looks at it now and then.
  explicit Lane(std::function<std::string()> failure = {});
  // Waits for the operation under way, unless abandon() was called.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // After a failure nothing more is run: the ranks are no longer in step, and every later wait throws the same.
  WorkPtr add(std::function<void()> run);
  // When an operation under way cannot be stopped: true, and its thread is left to itself. False: nothing is under way.
  bool abandon();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace apus
