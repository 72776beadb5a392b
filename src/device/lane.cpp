// SPDX-License-Identifier: Apache-2.0
#include "device/lane.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace apus {

namespace {

struct Task {
  std::function<void()> run;
  bool done = false;
  std::exception_ptr error;
};

}  // namespace

struct Lane::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Task>> waiting;
  bool closed = false, busy = false;
  std::function<std::string()> failure;
  std::thread thread;

  void work() {
    std::exception_ptr broken;
    for (std::unique_lock lock(mutex);;) {
      changed.wait(lock, [&] { return closed || !waiting.empty(); });
      if (waiting.empty()) return;
      const std::shared_ptr<Task> task = waiting.front();
      waiting.pop_front();
      busy = true;
      lock.unlock();
      try {
        if (!broken) task->run();
      } catch (...) {
        broken = std::current_exception();
      }
      task->run = nullptr;  // lets go of the tensors before anybody is told
      lock.lock();
      task->done = true, task->error = broken, busy = false;
      changed.notify_all();
    }
  }

  // The operation itself keeps the time limit.
  void wait(const Task& task) {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, std::chrono::seconds(2), [&] { return task.done; })) {
      if (!failure) continue;
      lock.unlock();
      const std::string reason = failure();
      require(reason.empty(), Fault::Comm, "another rank is lost, on which this one waits: ", reason);
      lock.lock();
    }
    if (task.error) std::rethrow_exception(task.error);
  }
};

namespace {

template <class State>
struct Pending final : Work {
  Pending(std::shared_ptr<State> s, std::shared_ptr<Task> t) : state(std::move(s)), task(std::move(t)) {}
  void wait() override { state->wait(*task); }
  std::shared_ptr<State> state;
  std::shared_ptr<Task> task;
};

}  // namespace

Lane::Lane(std::function<std::string()> failure) : state_(std::make_shared<State>()) {
  state_->failure = std::move(failure);
  state_->thread = std::thread([state = state_] { state->work(); });
}

Lane::~Lane() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    state_->changed.notify_all();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

bool Lane::abandon() {
  const std::lock_guard lock(state_->mutex);
  if (!state_->busy) return false;
  state_->waiting.clear();
  state_->thread.detach();
  return true;
}

WorkPtr Lane::add(std::function<void()> run) {
  auto task = std::make_shared<Task>();
  task->run = std::move(run);
  const std::lock_guard lock(state_->mutex);
  state_->waiting.push_back(task);
  state_->changed.notify_all();
  return std::make_unique<Pending<State>>(state_, task);
}

}  // namespace apus
