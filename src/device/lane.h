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
  // `failure` gives the message of a rank that failed, "" while none has; a thread that waits asks it again and again.
  explicit Lane(std::function<std::string()> failure = {});
  // Waits for the operation under way, unless abandon() was called.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // After a failure nothing more is run: the ranks are no longer in step, and every later wait throws the same.
  WorkPtr add(std::function<void()> run);
  // For an operation that cannot be stopped: leaves its thread to itself. False: no operation was under way.
  bool abandon();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace apus
