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
  void stop();                            // what is queued is dropped, what runs is waited for

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::function<void()>> queue_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

// Its work runs one after the other, on any of the workers.
class Serial : public std::enable_shared_from_this<Serial> {
 public:
  explicit Serial(std::shared_ptr<Workers> workers) : workers_(std::move(workers)) {}
  void post(std::function<void()> work);

 private:
  void run_some();
  const std::shared_ptr<Workers> workers_;
  std::mutex mutex_;
  std::deque<std::function<void()>> queue_;
  bool running_ = false;
};

}  // namespace apus
