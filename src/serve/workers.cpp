// SPDX-License-Identifier: Apache-2.0
#include "serve/workers.h"

#include <pthread.h>

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

struct Workers::State {
  std::mutex mutex;
  std::condition_variable filled;
  std::deque<std::function<void()>> queue;
  bool stopped = false;

  void run();
};

void Workers::State::run() {
  ::pthread_setname_np(::pthread_self(), "serve-worker");  // for top, and for bench/serve
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex);
      filled.wait(lock, [&] { return stopped || !queue.empty(); });
      if (stopped) return;
      work = std::move(queue.front());
      queue.pop_front();
    }
    run_safely(work);
  }
}

Workers::Workers(int threads) : state_(std::make_shared<State>()) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([state = state_] { state->run(); });
}

Workers::~Workers() { stop(); }

void Workers::post(std::function<void()> work) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->stopped) return;
    state_->queue.push_back(std::move(work));
  }
  state_->filled.notify_one();
}

void Workers::stop() {
  std::deque<std::function<void()>> dropped;  // destroyed outside of the lock: it may post
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopped = true;
    dropped.swap(state_->queue);
  }
  state_->filled.notify_all();
  dropped.clear();
  for (auto& t : threads_) {
    if (t.get_id() == std::this_thread::get_id())
      t.detach();
    else if (t.joinable())
      t.join();
  }
}

// The right to run on a worker. Unused, because the workers have stopped, it ends what waits: that work may well hold
// the Serial's owner, and nobody else would ever take it out.
class Serial::Turn {
 public:
  explicit Turn(std::shared_ptr<Serial> of) : of_(std::move(of)) {}
  ~Turn() {
    if (of_) of_->drop();
  }
  void take() { std::exchange(of_, nullptr)->run_some(); }

 private:
  std::shared_ptr<Serial> of_;
};

void Serial::ask_for_turn() {
  workers_->post([turn = std::make_shared<Turn>(shared_from_this())] { turn->take(); });
}

void Serial::drop() {
  std::deque<std::function<void()>> dropped;  // destroyed outside of the lock: it may post
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
    dropped.swap(queue_);
  }
}

void Serial::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    if (std::exchange(running_, true)) return;
  }
  ask_for_turn();
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
  ask_for_turn();
}

}  // namespace apus
