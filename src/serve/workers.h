// SPDX-License-Identifier: Apache-2.0
// Threads for what may take a while (templates, tokenising, JSON), and the order of things within one request.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace apus {

class Workers {
 public:
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  void post(std::function<void()> work);  // after stop() it is dropped
  // Drops what is queued and waits for what runs. Only a work that calls this itself is not waited for (it may, by
  // dropping the last owner): that one ends on its own.
  void stop();

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the threads
  std::vector<std::thread> threads_;
};

// Runs its work one after the other, on any of the workers; when they stop, waiting work is dropped.
class Serial : public std::enable_shared_from_this<Serial> {
 public:
  explicit Serial(std::shared_ptr<Workers> workers) : workers_(std::move(workers)) {}
  void post(std::function<void()> work);

 private:
  class Turn;
  void ask_for_turn();
  void run_some();
  void drop();
  const std::shared_ptr<Workers> workers_;
  std::mutex mutex_;
  std::deque<std::function<void()>> queue_;
  bool running_ = false;
};

}  // namespace apus
