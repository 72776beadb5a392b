// SPDX-License-Identifier: Apache-2.0
#include "loads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "server_process.h"
#include "stream_client.h"

namespace apus::bench {

namespace {

void add_tokens(Json& ids, int count, int vocab, uint64_t seed) {
  Random random(seed, "prompt");
  for (int i = 0; i < count; ++i) ids.push_back(100 + random.below(static_cast<uint64_t>(vocab - 100)));
}

Json completion(const std::string& model, const Json& ids, int news) {
  return {{"model", model},     {"prompt", ids},
          {"max_tokens", news}, {"temperature", 0},
          {"stream", true},     {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}},
          {"ignore_eos", true}};
}

Json request(const std::string& model, int prompt, int news, int vocab, uint64_t seed) {
  Json ids = Json::array();
  add_tokens(ids, prompt, vocab, seed);
  return completion(model, ids, news);
}

double quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())))];
}

void in_threads(int count, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&f, i] { f(i); });
  for (auto& t : threads) t.join();
}

// A figure of /metrics; -1: the server has none of that name.
double metric(const Target& target, const std::string& name) {
  Address address = address_of(target.url);
  const Reply reply = Connection(address, 30).get("/metrics");
  const size_t at = reply.body.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::atof(reply.body.c_str() + at + name.size() + 2);
}

}  // namespace

std::string model_of(const Target& target) {
  const Address address = address_of(target.url);
  const Reply reply = Connection(address, 30).get(address.path + "/models");
  const Json body = Json::parse(reply.body, nullptr, false);
  require(reply.status == 200 && body.is_object() && body.contains("data") && !body["data"].empty(), Fault::Io,
          target.url, " names no model: ", reply.status, " ", reply.error);
  return body["data"][0].value("id", "");
}

Figures timed_load(const Target& target, const std::string& model, const Shape& shape, int vocab, uint64_t seed) {
  Figures figures;
  std::mutex mutex;
  std::vector<double> first, gaps;
  int64_t tokens = 0;
  const double begin = now(), busy = serving_seconds(target.pid);
  in_threads(shape.clients, [&](int client) {
    Connection connection(address_of(target.url));
    for (int i = 0; i < shape.requests; ++i) {
      const Timed t = connection.stream(request(model, shape.prompt, shape.news, vocab,
                                                mix(seed, static_cast<uint64_t>(client), static_cast<uint64_t>(i))));
      const std::lock_guard lock(mutex);
      ++figures.requests;
      const bool fine = t.ok && t.new_tokens == shape.news;
      if (!fine && figures.failed++ == 0)
        figures.error = t.ok ? str("it has ", t.new_tokens, " tokens instead of ", shape.news) : t.error;
      if (!fine) continue;
      tokens += t.new_tokens;
      first.push_back(t.first);
      gaps.insert(gaps.end(), t.gaps.begin(), t.gaps.end());
    }
  });
  const double took = now() - begin;
  figures.tokens_per_second = static_cast<double>(tokens) / took;
  if (busy >= 0) figures.serving_share = (serving_seconds(target.pid) - busy) / took;
  figures.first_p50 = quantile(first, 0.5), figures.first_p99 = quantile(first, 0.99);
  figures.gap_p50 = quantile(gaps, 0.5), figures.gap_p99 = quantile(gaps, 0.99);
  return figures;
}

bool soak(const Target& target, const std::string& model, double minutes, int clients, int vocab) {
  std::atomic<int64_t> answered{0}, left{0}, failed{0};
  std::atomic<bool> over{false};
  std::mutex mutex;
  std::string error;
  const double begin = now();
  std::thread load([&] {
    in_threads(clients, [&](int client) {
      Random random(static_cast<uint64_t>(client), "soak");
      Connection connection(address_of(target.url));
      while (!over) {
        const Json body = request(model, 1 + static_cast<int>(random.below(400)),
                                  1 + static_cast<int>(random.below(100)), vocab, random.bits());
        if (random.below(3) == 0) {
          connection.stream_and_leave(body, 1 + static_cast<int>(random.below(20))) ? ++left : ++failed;
          continue;
        }
        const Timed t = connection.stream(body);
        if (t.ok) {
          ++answered;
          continue;
        }
        ++failed;
        const std::lock_guard lock(mutex);
        if (error.empty()) error = t.error;
      }
    });
  });
  std::printf(
      "| minute | answered | left early | failed | memory MiB | blocks used | running | waiting "
      "|\n|---|---|---|---|---|---|---|---|\n");
  std::vector<double> memory;
  const auto row = [&] {
    memory.push_back(resident_mib(target.pid));
    std::printf("| %.1f | %lld | %lld | %lld | %.1f | %.0f | %.0f | %.0f |\n", (now() - begin) / 60,
                static_cast<long long>(answered), static_cast<long long>(left), static_cast<long long>(failed),
                memory.back(), metric(target, "apus_cache_blocks_used"), metric(target, "apus_sequences_running"),
                metric(target, "apus_sequences_waiting"));
    std::fflush(stdout);
  };
  const double step = std::min(60.0, minutes * 60 / 10);
  for (double next = step; next <= minutes * 60 + 0.5; next += step) {
    while (now() - begin < next) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    row();
  }
  over = true;
  load.join();
  double blocks = -1, running = -1, waiting = -1;
  for (int i = 0; i < 100; ++i) {  // clients that left are noticed within a step
    blocks = metric(target, "apus_cache_blocks_used"), running = metric(target, "apus_sequences_running"),
    waiting = metric(target, "apus_sequences_waiting");
    if (blocks <= 0 && running <= 0 && waiting <= 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  row();
  // The first fifth is warming up: caches fill, threads start.
  const double early = memory[memory.size() / 5], late = memory[memory.size() - 2];
  const double growth = early > 0 ? (late / early - 1) * 100 : 0;
  std::printf("\nmemory %+.1f %%, blocks left %.0f, running %.0f, waiting %.0f, failed %lld%s%s\n", growth, blocks,
              running, waiting, static_cast<long long>(failed), error.empty() ? "" : ": ", error.c_str());
  return growth < 2 && blocks <= 0 && running <= 0 && waiting <= 0 && failed == 0 && answered > 0;
}

bool shared_prefix(const Target& target, const std::string& model, int prefix, int vocab) {
  constexpr int kRounds = 5, kHits = 4, kOwn = 16;
  std::vector<double> missed, hit;
  Connection connection(address_of(target.url));
  uint64_t seed = mix(7, 0, static_cast<uint64_t>(now() * 1e6));  // nothing of an earlier run is in the cache
  for (int round = 0; round < kRounds; ++round) {
    Json shared = Json::array();
    add_tokens(shared, prefix, vocab, ++seed);
    for (int i = 0; i <= kHits; ++i) {
      Json ids = shared;
      add_tokens(ids, kOwn, vocab, ++seed);
      const Timed t = connection.stream(completion(model, ids, 4));
      require(t.ok, Fault::Io, target.url, ": ", t.error);
      (i == 0 ? missed : hit).push_back(t.first);
    }
  }
  const double miss = quantile(missed, 0.5), found = quantile(hit, 0.5);
  std::printf(
      "a prefix of %d tokens and %d of one's own: first token after %.1f ms when it is new, %.1f ms when it is "
      "known (p50 of %zu and %zu): %.1f times sooner\n",
      prefix, kOwn, miss * 1000, found * 1000, missed.size(), hit.size(), miss / found);
  return miss >= 5 * found;
}

bool many_connections(const Target& target, const std::string& model, int idle, int active, int vocab) {
  const Address address = address_of(target.url);
  std::vector<std::unique_ptr<Connection>> quiet;
  int refused = 0, lost = 0;
  for (int i = 0; i < idle; ++i) {
    quiet.push_back(std::make_unique<Connection>(address, 30));
    refused += quiet.back()->get("/health").status != 200;  // kept alive from here on
  }
  // A server may close what is silent for longer than its limit (75 s here): they show themselves now and then.
  std::atomic<bool> over{false};
  std::thread showing([&] {
    for (double last = now(); !over; std::this_thread::sleep_for(std::chrono::milliseconds(100))) {
      if (now() - last < 30) continue;
      last = now();
      for (auto& c : quiet) lost += c->get("/health").status != 200;
    }
  });
  const Figures f = timed_load(target, model, {active, 16, 16, 2}, vocab, 77);
  over = true;
  showing.join();
  for (auto& c : quiet) lost += c->get("/health").status != 200;
  std::printf(
      "%d idle connections: %d refused, %d lost; %d active ones: %d requests, %d failed%s%s, %.1f tokens/s, first "
      "token p50 %.2f s p99 %.2f s\n",
      idle, refused, lost, active, f.requests, f.failed, f.error.empty() ? "" : ": ", f.error.c_str(),
      f.tokens_per_second, f.first_p50, f.first_p99);
  return refused == 0 && lost == 0 && f.failed == 0;
}

}  // namespace apus::bench
