// SPDX-License-Identifier: Apache-2.0
// A bounded queue between threads, and a worker that runs ahead of its consumer by a bounded number of items.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace apus {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity ? capacity : 1) {}

  // Waits for room. False: the queue was closed, the item is dropped.
  bool push(T item) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return closed_ || items_.size() < capacity_; });
    if (closed_) return false;
    items_.push_back(std::move(item));
    filled_.notify_one();
    return true;
  }
  // Waits for an item. Nothing: closed, and all that was pushed before has been taken.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    room_.notify_one();
    return item;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    room_.notify_all();
    filled_.notify_all();
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable room_, filled_;
  std::deque<T> items_;
  bool closed_ = false;
};

// Calls produce() on its own thread until it returns nothing, at most `ahead` items in advance.
// An exception of produce() reaches the consumer after the items before it.
template <class T>
class RunAhead {
 public:
  RunAhead(size_t ahead, std::function<std::optional<T>()> produce)
      : queue_(ahead), produce_(std::move(produce)), thread_([this] { work(); }) {}
  ~RunAhead() {
    queue_.close();
    thread_.join();
  }
  RunAhead(const RunAhead&) = delete;
  RunAhead& operator=(const RunAhead&) = delete;

  std::optional<T> next() {
    auto item = queue_.pop();
    if (!item && failure_) std::rethrow_exception(failure_);  // written before close(), which pop() has seen
    return item;
  }

 private:
  void work() {
    try {
      while (auto item = produce_()) {
        if (!queue_.push(std::move(*item))) return;
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
    queue_.close();
  }
  BoundedQueue<T> queue_;
  std::function<std::optional<T>()> produce_;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace apus
