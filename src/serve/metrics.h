// SPDX-License-Identifier: Apache-2.0
// What the server counts, as Prometheus reads it and as a line of statistics. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "engine/answer/text_engine.h"
#include "serve/answer_stream.h"

namespace apus {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double x);
  std::string text(const std::string& name, const std::string& help) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

class ServerMetrics : public AnswerMeter {
 public:
  void first_token(double seconds) override;
  void next_token(double seconds) override;
  void finished(const Usage& usage) override;
  void request(const std::string& path, int status, double seconds);

  std::string prometheus(const EngineStats& engine, int64_t active) const;
  // {"num_prompt_tokens", "num_generated_tokens", "num_samples", "runtime", "samples/s", "tokens/s"}; null when nothing
  // was answered since the last call.
  Json statistics(const EngineStats& engine);

 private:
  mutable std::mutex mutex_;
  const Stopwatch since_{};
  std::map<std::pair<std::string, int>, int64_t> requests_;
  int64_t answered_ = 0, told_ = 0;
  const std::vector<double> kShort = {0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2};
  const std::vector<double> kLong = {0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160};
  Histogram first_{kLong}, next_{kShort}, whole_{kLong};
};

}  // namespace apus
