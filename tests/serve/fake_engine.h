// SPDX-License-Identifier: Apache-2.0
// A TextEngine without a model: what it says is scripted, one token per step on a thread of its own, as the engine's.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "engine/answer/text_engine.h"
#include "tests/eventually.h"

namespace apus {

class FakeEngine : public TextEngine {
 public:
  using Script = std::function<std::vector<int32_t>(const EngineRequest&)>;
  explicit FakeEngine(Script script) : script_(std::move(script)), thread_([this] { run(); }) {}
  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  int64_t submit(EngineRequest request) override {
    const std::lock_guard lock(mutex_);
    require(request.adapter.empty() || adapters_.count(request.adapter), Fault::Usage, "no such adapter");
    Active a;
    a.script = script_(request);
    a.request = std::move(request);
    seen_.push_back(a.request);
    seen_.back().sink = nullptr;
    seen_.back().embedding_sink = nullptr;
    active_[++last_] = std::move(a);
    changed_.notify_all();
    return last_;
  }
  void cancel(int64_t request) override {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(request);
    changed_.notify_all();
  }
  EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    EngineStats s;
    s.running = static_cast<int64_t>(active_.size());
    s.waiting = waiting;
    s.generated_tokens = generated_;
    return s;
  }
  int64_t max_model_len() const override { return 2000; }
  int64_t vocab() const override { return 1 << 20; }
  int64_t known_words() const override { return (1 << 20) + 8; }
  std::vector<std::string> adapters() const override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, dir] : adapters_) names.push_back(name);
    return names;
  }
  void load_adapter(const std::string& name, const std::string& dir) override {
    const std::lock_guard lock(mutex_);
    require(dir != "missing", Fault::Data, dir, " holds no adapter");
    adapters_[name] = dir;
  }
  void unload_adapter(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    adapters_.erase(name);
  }
  void sleep(int level) override {
    require(level < 2, Fault::Usage, "these weights cannot be read again");
    hold = true;
  }
  void wake() override {
    hold = false;
    changed_.notify_all();
  }

  // For tests.
  std::vector<EngineRequest> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  int64_t running() const { return stats().running; }
  bool becomes_idle() const {
    return test::eventually([&] { return running() == 0; });
  }
  bool has_seen(size_t requests) const {
    return test::eventually([&] { return seen().size() >= requests; });
  }
  // What requests for numbers get.
  std::function<std::vector<float>(const EngineRequest&)> numbers = [](const EngineRequest& r) {
    return std::vector<float>{3, static_cast<float>(r.prompt.size()), 4};
  };
  std::atomic<int64_t> waiting{0}, fail_after{-1}, cancels{0};
  std::atomic<int64_t> fail_only{-1};  // which request fails then; -1: all
  std::atomic<int> step_us{0};         // pause between steps
  std::atomic<bool> hold{false};       // nobody gets a token

 private:
  struct Active {
    EngineRequest request;
    std::vector<int32_t> script;
    size_t next = 0;
  };

  void run() {
    for (bool last = false; !last;) {
      std::vector<std::function<void()>> tell;
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::milliseconds(5),
                          [&] { return stopping_ || !cancelled_.empty() || (!active_.empty() && !hold); });
        last = stopping_;
        if (last) {
          for (const auto& [id, a] : active_) end(a, id, Finish::Cancelled, tell);
          active_.clear();
        }
        for (const int64_t id : std::exchange(cancelled_, {}))
          if (const auto it = active_.find(id); it != active_.end()) {
            ++cancels;
            end(it->second, id, Finish::Cancelled, tell);
            active_.erase(it);
          }
        if (!hold) step(tell);
      }
      for (const auto& t : tell) t();
      if (step_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(step_us));
    }
  }
  static void end(const Active& a, int64_t id, Finish why, std::vector<std::function<void()>>& tell,
                  const std::string& error = "") {
    tell.push_back([sink = a.request.sink, event = EngineEvent{.request = id, .finish = why, .error = error}] {
      if (sink) sink(event);
    });
  }
  void step(std::vector<std::function<void()>>& tell) {
    for (auto it = active_.begin(); it != active_.end();) {
      Active& a = it->second;
      if (a.request.embedding) {
        tell.push_back([f = a.request.embedding_sink, said = numbers(a.request)] { f(said); });
        end(a, it->first, Finish::Stop, tell);
        it = active_.erase(it);
        continue;
      }
      const bool may_fail = fail_only < 0 || fail_only == it->first;
      if (fail_after >= 0 && may_fail && static_cast<int64_t>(a.next) >= fail_after) {
        end(a, it->first, Finish::Failed, tell, "the device is gone");
        it = active_.erase(it);
        continue;
      }
      const int32_t token = a.script[a.next++];
      ++generated_;
      const Sampling& s = a.request.sampling;
      EngineEvent event{.request = it->first};
      TokenOut out{.id = token, .logprob = -0.5f};
      for (int64_t k = 0; k < s.top_logprobs; ++k)
        out.top.emplace_back(token + static_cast<int32_t>(k), -0.5f - static_cast<float>(k));
      event.tokens.push_back(out);
      if (a.next == 1 && s.prompt_logprobs >= 0)
        for (const int32_t id : a.request.prompt) event.prompt.push_back({.id = id, .logprob = -1});
      if (std::find(s.stop_ids.begin(), s.stop_ids.end(), token) != s.stop_ids.end())
        event.finish = Finish::Stop;
      else if (static_cast<int64_t>(a.next) >= s.max_new_tokens || a.next == a.script.size())
        event.finish = Finish::Length;
      tell.push_back([sink = a.request.sink, event] { sink(event); });
      it = event.finish == Finish::None ? std::next(it) : active_.erase(it);
    }
  }

  const Script script_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Active> active_;
  std::vector<int64_t> cancelled_;
  std::vector<EngineRequest> seen_;
  std::map<std::string, std::string> adapters_;
  int64_t last_ = 0, generated_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last
};

}  // namespace apus
