// SPDX-License-Identifier: Apache-2.0
// The loads: fixed streams to be timed, a prefix that prompts share, a soak with clients that leave, many connections.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace apus::bench {

struct Target {
  std::string name, url;
  pid_t pid = -1;  // of a server that can be looked at
};

struct Shape {
  int clients, prompt, news;
  int requests;  // of each client
};

struct Figures {
  double tokens_per_second = 0, first_p50 = 0, first_p99 = 0, gap_p50 = 0, gap_p99 = 0;
  // Of the time, spent by the server's threads for HTTP, JSON and text; -1: not known.
  double serving_share = -1;
  int requests = 0, failed = 0;
  std::string error;  // the first one
};

// Greedy, exactly `news` tokens for each, prompts of token ids below `vocab`, no two alike.
Figures timed_load(const Target& target, const std::string& model, const Shape& shape, int vocab, uint64_t seed);
std::string model_of(const Target& target);

// The first token of prompts that begin alike, against that of new ones; true: five times sooner.
bool shared_prefix(const Target& target, const std::string& model, int prefix, int vocab);
// Prints a line a minute; true: memory flat within 2 %, no block or request left over, every request answered.
bool soak(const Target& target, const std::string& model, double minutes, int clients, int vocab);
// Idle connections stay open while others work, and answer afterwards.
bool many_connections(const Target& target, const std::string& model, int idle, int active, int vocab);

}  // namespace apus::bench
