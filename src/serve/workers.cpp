// SPDX-License-Identifier: Apache-2.0
#include "serve/workers.h"

#include <exception>
#include <utility>

#include "base/log.h"

namespace apus {

namespace {
constexpr int kTurns = 16;  // of one Serial before others get the thread

void run_safely(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& e) {
    log_error("in a worker of the server: ", e.what());
  }
}
}  // namespace

Workers::Workers(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

Workers::~Workers() { stop(); }

void Workers::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    queue_.push_back(std::move(work));
  }
  filled_.notify_one();
}

void Workers::stop() {
  std::deque<std::function<void()>> dropped;  // destroyed outside of the lock: it may post
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(queue_);
  }
  filled_.notify_all();
  for (auto& t : threads_)
    if (t.joinable()) t.join();
}

void Workers::run() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      filled_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
      if (stopped_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    run_safely(work);
  }
}

void Serial::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    if (std::exchange(running_, true)) return;
  }
  workers_->post([self = shared_from_this()] { self->run_some(); });
}

void Serial::run_some() {
  for (int turn = 0; turn < kTurns; ++turn) {
    std::function<void()> work;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) {
        running_ = false;
        return;
      }
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    run_safely(work);
  }
  workers_->post([self = shared_from_this()] { self->run_some(); });
}

}  // namespace apus
