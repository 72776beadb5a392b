// SPDX-License-Identifier: Apache-2.0
#include "engine/answer/answer_all.h"

#include <condition_variable>
#include <mutex>

namespace apus {

std::vector<int32_t> FinishedAnswer::ids() const {
  std::vector<int32_t> out;
  for (const auto& t : tokens) out.push_back(t.id);
  return out;
}

namespace {
struct Collector {
  explicit Collector(size_t count) : results(count), left(count) {}
  void take(size_t i, const EngineEvent& e) {
    const std::lock_guard lock(mutex);
    FinishedAnswer& g = results[i];
    g.tokens.insert(g.tokens.end(), e.tokens.begin(), e.tokens.end());
    g.prompt.insert(g.prompt.end(), e.prompt.begin(), e.prompt.end());
    g.cached_tokens += e.cached_tokens;
    if (e.finish == Finish::None) return;
    g.finish = e.finish;
    g.error = e.error;
    if (--left == 0) done.notify_all();
  }
  std::mutex mutex;
  std::condition_variable done;
  std::vector<FinishedAnswer> results;
  size_t left;
};
}  // namespace

std::vector<FinishedAnswer> generate(TextEngine& engine, std::vector<EngineRequest> requests) {
  const auto collector = std::make_shared<Collector>(requests.size());
  std::vector<int64_t> ids;
  try {
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].sink = [collector, i](const EngineEvent& e) { collector->take(i, e); };
      ids.push_back(engine.submit(std::move(requests[i])));
    }
  } catch (...) {
    for (const int64_t id : ids) engine.cancel(id);
    throw;
  }
  std::unique_lock lock(collector->mutex);
  collector->done.wait(lock, [&] { return collector->left == 0; });
  return std::move(collector->results);
}

std::vector<FinishedAnswer> generate(TextEngine& engine, const std::vector<std::vector<int32_t>>& prompts,
                                     const Sampling& sampling) {
  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    requests.push_back({.prompt = prompts[i], .sampling = sampling});
    requests.back().sampling.seed += i;
  }
  return generate(engine, std::move(requests));
}

}  // namespace apus
