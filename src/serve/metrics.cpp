// SPDX-License-Identifier: Apache-2.0
#include "serve/metrics.h"

#include <nlohmann/json.hpp>

namespace apus {

namespace {
std::string header(const std::string& name, const char* type, const std::string& help) {
  return "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}
std::string line(const std::string& name, const char* type, const std::string& help, int64_t value) {
  return header(name, type, help) + str(name, " ", value, "\n");
}
}  // namespace

void Histogram::add(double x) {
  size_t i = 0;
  while (i < bounds_.size() && x > bounds_[i]) ++i;
  ++counts_[i];
  sum_ += x;
}

std::string Histogram::text(const std::string& name, const std::string& help) const {
  std::string out = header(name, "histogram", help);
  int64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    out += str(name, "_bucket{le=\"", i < bounds_.size() ? str(bounds_[i]) : "+Inf", "\"} ", total, "\n");
  }
  return out + str(name, "_sum ", sum_, "\n", name, "_count ", total, "\n");
}

void ServerMetrics::first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_.add(seconds);
}

void ServerMetrics::next_token(double seconds) {
  const std::lock_guard lock(mutex_);
  next_.add(seconds);
}

void ServerMetrics::finished(const Usage&) {
  const std::lock_guard lock(mutex_);
  ++answered_;
}

void ServerMetrics::request(const std::string& path, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++requests_[{path, status}];
  whole_.add(seconds);
}

std::string ServerMetrics::prometheus(const EngineStats& e, int64_t active) const {
  std::string out = line("apus_requests_active", "gauge", "HTTP requests being answered", active);
  out += line("apus_sequences_running", "gauge", "sequences in the batch", e.running);
  out += line("apus_sequences_waiting", "gauge", "sequences waiting for a place in the batch", e.waiting);
  out += line("apus_cache_blocks", "gauge", "blocks of the key-value cache", e.blocks_total);
  out += line("apus_cache_blocks_used", "gauge", "blocks that running sequences hold", e.blocks_used);
  out += line("apus_cache_blocks_findable", "gauge", "blocks that later prompts can share", e.blocks_cached);
  out += line("apus_prompt_tokens_total", "counter", "tokens of prompts", e.prompt_tokens);
  out += line("apus_cached_tokens_total", "counter", "tokens of prompts that the cache had", e.cached_tokens);
  out += line("apus_generated_tokens_total", "counter", "tokens of answers", e.generated_tokens);
  out += line("apus_drafted_tokens_total", "counter", "tokens of answers that were guessed", e.drafted_tokens);
  out += line("apus_accepted_tokens_total", "counter", "guessed tokens that were right", e.accepted_tokens);
  out += line("apus_preemptions_total", "counter", "sequences that gave their blocks back and were computed again",
              e.preemptions);
  out += line("apus_steps_total", "counter", "forward passes", e.steps);
  out += line("apus_failed_steps_total", "counter", "forward passes that failed", e.failed_steps);
  const std::lock_guard lock(mutex_);
  out += line("apus_answers_total", "counter", "requests answered to the end", answered_);
  out += header("apus_http_requests_total", "counter", "HTTP requests by path and status");
  for (const auto& [key, count] : requests_)
    out += str("apus_http_requests_total{path=\"", key.first, "\",status=\"", key.second, "\"} ", count, "\n");
  out += first_.text("apus_first_token_seconds", "from the request to its first token");
  out += next_.text("apus_between_tokens_seconds", "from one token of an answer to the next");
  return out + whole_.text("apus_request_seconds", "from the request to the end of its answer");
}

Json ServerMetrics::statistics(const EngineStats& e) {
  const std::lock_guard lock(mutex_);
  if (answered_ == std::exchange(told_, answered_)) return {};
  const double runtime = since_.seconds();
  Json all = {{"num_prompt_tokens", e.prompt_tokens},
              {"num_generated_tokens", e.generated_tokens},
              {"num_samples", answered_},
              {"runtime", runtime},
              {"samples/s", static_cast<double>(answered_) / runtime},
              {"tokens/s", static_cast<double>(e.generated_tokens) / runtime},
              {"running", e.running},
              {"waiting", e.waiting}};
  if (e.drafted_tokens > 0)
    all.update({{"num_drafted_tokens", e.drafted_tokens}, {"num_accepted_tokens", e.accepted_tokens}});
  return all;
}

}  // namespace apus
