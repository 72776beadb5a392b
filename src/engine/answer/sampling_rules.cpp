// SPDX-License-Identifier: Apache-2.0
#include "engine/answer/sampling_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "base/vectors.h"

namespace apus {

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

struct Better {  // by value, then the smaller id
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  }
};

bool in(std::span<const float> logits, int32_t token) {
  return token >= 0 && static_cast<size_t>(token) < logits.size();
}

// exp(logit / temperature - high): single precision for each, sums are double.
double weight(float logit, double temperature, double high) {
  return std::exp(static_cast<float>(logit / temperature - high));
}

// The tokens above -inf whose logit is at least `bar`, best first.
std::vector<int32_t> above(std::span<const float> logits, float bar) {
  std::vector<int32_t> list;
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] >= bar && logits[i] != kNever) list.push_back(static_cast<int32_t>(i));
  std::sort(list.begin(), list.end(), Better{logits});
  return list;
}

// The n best tokens, best first, without sorting the rest. Those at -inf are never among them.
std::vector<int32_t> best(std::span<const float> logits, size_t n) {
  std::vector<int32_t> heap;  // its front is the worst of the best
  const Better better{logits};
  if (n >= logits.size()) return above(logits, kNever);
  if (n == 0) return heap;
  heap.reserve(n);
  float bar = kNever;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > bar)) continue;  // ids rise, so an equal value is worse
    const auto token = static_cast<int32_t>(i);
    if (heap.size() == n) {
      std::pop_heap(heap.begin(), heap.end(), better);
      heap.back() = token;
    } else {
      heap.push_back(token);
    }
    std::push_heap(heap.begin(), heap.end(), better);
    if (heap.size() == n) bar = logits[static_cast<size_t>(heap.front())];
  }
  std::sort_heap(heap.begin(), heap.end(), better);
  return heap;
}

// Equals of the last one are in too, as in HuggingFace.
std::vector<int32_t> best_and_equals(std::span<const float> logits, size_t n) {
  std::vector<int32_t> list = best(logits, n);
  if (list.size() < n) return list;
  const auto last = static_cast<size_t>(list.back());
  for (size_t i = last + 1; i < logits.size(); ++i)
    if (logits[i] == logits[last]) list.push_back(static_cast<int32_t>(i));
  return list;
}

// The most likely tokens that together hold at least top_p of `total` (in units of exp(logit - high)): tried with more
// and more of the best, because a few hundred nearly always hold it.
std::vector<int32_t> nucleus(std::span<const float> logits, double temperature, double top_p, double high,
                             double total) {
  for (size_t n = 256;; n *= 16) {
    std::vector<int32_t> list = best(logits, n);
    double sum = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      sum += weight(logits[static_cast<size_t>(list[i])], temperature, high);
      if (sum < top_p * total) continue;
      list.resize(i + 1);
      return list;
    }
    if (n >= logits.size()) return list;
  }
}

bool limits_k(const Sampling& s, size_t vocab) { return s.top_k > 0 && static_cast<size_t>(s.top_k) < vocab; }

double sum_of(const std::vector<Candidate>& list) {
  double sum = 0;
  for (const auto& c : list) sum += c.probability;
  return sum;
}

// Those whose probability is at least `bar`, best first, and the likeliest in any case.
void keep_at_least(std::vector<Candidate>& list, double bar) {
  size_t keep = 1;
  while (keep < list.size() && list[keep].probability >= bar) ++keep;
  list.resize(keep);
}

// 1 / temperature; no larger than lets a difference of 0 stay 0.
float inverse(double temperature) { return static_cast<float>(std::min(1 / temperature, 1e30)); }

}  // namespace

bool has_penalties(const Sampling& s) {
  return s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0;
}

bool plain_greedy(const Sampling& s, bool constrained) {
  return s.temperature == 0 && !constrained && !has_penalties(s) && s.logit_bias.empty() && s.min_new_tokens <= 0 &&
         s.no_repeat_ngram_size <= 0 && s.top_logprobs < 0 && s.never.empty() && s.never_first.empty();
}

void apply_bias(std::span<float> logits, const Sampling& s) {
  for (const auto& [token, bias] : s.logit_bias)
    if (in(logits, token)) logits[static_cast<size_t>(token)] += bias;
}

void forbid(std::span<float> logits, std::span<const int32_t> tokens) {
  for (const int32_t t : tokens)
    if (in(logits, t)) logits[static_cast<size_t>(t)] = kNever;
}

void apply_mask(std::span<float> logits, std::span<const uint64_t> allowed) {
  for (size_t i = 0; i < logits.size(); i += 64) {
    const uint64_t word = i / 64 < allowed.size() ? allowed[i / 64] : 0;
    if (word == ~uint64_t{0}) continue;
    const size_t end = std::min(logits.size(), i + 64);
    for (size_t t = i; t < end; ++t)
      if (!((word >> (t - i)) & 1)) logits[t] = kNever;
  }
}

void apply_penalties(std::span<float> logits, const TokenCounts& counts, const Sampling& s) {
  if (!has_penalties(s)) return;
  const auto repetition = static_cast<float>(s.repetition_penalty);
  for (const auto& [token, count] : counts.counts()) {
    if (!in(logits, token)) continue;
    float& x = logits[static_cast<size_t>(token)];
    x = x > 0 ? x / repetition : x * repetition;
    if (count > 0) x -= static_cast<float>(s.frequency_penalty * count + s.presence_penalty);
  }
}

std::vector<int32_t> repeats(std::span<const int32_t> tokens, int64_t n) {
  std::vector<int32_t> out;
  if (n <= 0 || static_cast<int64_t>(tokens.size()) < n) return out;
  const auto length = static_cast<size_t>(n) - 1;
  const auto tail = tokens.last(length);
  for (size_t i = 0; i + length < tokens.size(); ++i)
    if (std::equal(tail.begin(), tail.end(), tokens.begin() + static_cast<std::ptrdiff_t>(i)))
      out.push_back(tokens[i + length]);
  return out;
}

namespace {
bool may_not_end(const Sampling& s, const History& history) {
  return static_cast<int64_t>(history.tokens.size()) - history.prompt < s.min_new_tokens;
}
bool begins(const History& history) { return std::ssize(history.tokens) == history.prompt; }
}  // namespace

bool changes_nothing(const Sampling& s, const History& history, bool constrained) {
  return !constrained && !has_penalties(s) && s.logit_bias.empty() && !may_not_end(s, history) &&
         s.no_repeat_ngram_size <= 0 && s.never.empty() && (s.never_first.empty() || !begins(history));
}

void process(std::span<float> logits, const Sampling& s, const History& history, std::span<const uint64_t> allowed) {
  apply_bias(logits, s);
  forbid(logits, s.never);
  if (begins(history)) forbid(logits, s.never_first);
  if (may_not_end(s, history)) forbid(logits, s.stop_ids);
  if (s.no_repeat_ngram_size > 0) forbid(logits, repeats(history.tokens, s.no_repeat_ngram_size));
  if (!allowed.empty()) apply_mask(logits, allowed);
  apply_penalties(logits, history.counts, s);
}

std::vector<Candidate> candidates(std::span<const float> logits, const Sampling& s) {
  const float largest = vectors::largest(logits);
  const double high = largest / s.temperature;
  if (!std::isfinite(high)) return {};
  std::vector<int32_t> list;
  double total = 0;  // of what top_p and epsilon_cutoff are shares of
  if (limits_k(s, logits.size())) {
    list = best_and_equals(logits, static_cast<size_t>(s.top_k));
  } else if (s.top_p < 1) {
    total = vectors::sum_of_exps(logits, largest, inverse(s.temperature));
    list = nucleus(logits, s.temperature, s.top_p, high, total);
  } else {
    double bar = s.min_p;  // a share of the likeliest one's probability
    if (bar <= 0 && s.epsilon_cutoff > 0) {
      total = vectors::sum_of_exps(logits, largest, inverse(s.temperature));
      bar = std::min(s.epsilon_cutoff * total, 1.0);
    }
    // A little lower than the bar, which decides below, so that rounding leaves nobody out.
    list = above(logits, bar > 0 ? static_cast<float>((high + std::log(bar) - 1e-3) * s.temperature) : kNever);
  }
  std::vector<Candidate> out;
  double listed = 0;
  for (const int32_t t : list) {
    const float x = logits[static_cast<size_t>(t)];
    out.push_back({t, static_cast<float>(x / s.temperature), weight(x, s.temperature, high)});
    listed += out.back().probability;
  }
  if (total == 0) total = listed;
  if (s.top_p < 1) {
    double sum = 0;
    size_t keep = 0;
    while (keep < out.size() && sum < s.top_p * total) sum += out[keep++].probability;
    out.resize(std::max<size_t>(keep, 1));
  }
  if (s.min_p > 0) keep_at_least(out, s.min_p * out[0].probability);
  if (s.epsilon_cutoff > 0) {  // a share of what the filters above left; nothing was left out where there are none
    const double left = s.min_p > 0 || s.top_p < 1 || limits_k(s, logits.size()) ? sum_of(out) : total;
    keep_at_least(out, std::min(s.epsilon_cutoff * left, out[0].probability));
  }
  listed = sum_of(out);
  for (auto& c : out) c.probability /= listed;
  return out;
}

double draw_number(uint64_t seed, int64_t position) {
  static const uint64_t stream = stream_named("engine.sample");
  return Random(seed, stream, static_cast<uint64_t>(position)).uniform();
}

namespace {

int32_t first_of(std::span<const float> logits, float value) {
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), value) - logits.begin());
}

// All tokens may be drawn: no sorting, one pass to add up, one to find.
int32_t choose_among_all(std::span<const float> logits, double temperature, double number) {
  const float high = vectors::largest(logits), scale = inverse(temperature);
  if (!std::isfinite(high)) return -1;
  const double wanted = number * vectors::sum_of_exps(logits, high, scale);
  double sum = 0;
  int32_t last = -1;
  float p[vectors::kBlock];
  for (size_t begin = 0; begin < logits.size(); begin += vectors::kBlock) {
    const auto block = logits.subspan(begin, std::min(vectors::kBlock, logits.size() - begin));
    const double all = vectors::sum_of_exps(block, high, scale);
    const bool here = sum + all > wanted;
    if (!here && begin + vectors::kBlock < logits.size()) {  // the last block is looked through in any case
      sum += all;
      continue;
    }
    vectors::exps(block, high, scale, p);
    for (size_t i = 0; i < block.size(); ++i) {
      if (p[i] == 0) continue;
      last = static_cast<int32_t>(begin + i);
      if ((sum += static_cast<double>(p[i])) > wanted) return last;
    }
  }
  return last >= 0 ? last : first_of(logits, high);
}

}  // namespace

int32_t choose(std::span<const float> logits, const Sampling& s, int64_t position) {
  if (s.temperature == 0) {
    const float high = vectors::largest(logits);
    return std::isfinite(high) ? first_of(logits, high) : -1;
  }
  const double number = draw_number(s.seed, position);
  const bool all = !limits_k(s, logits.size()) && s.top_p >= 1 && s.min_p <= 0 && s.epsilon_cutoff <= 0;
  if (all) return choose_among_all(logits, s.temperature, number);
  const auto list = candidates(logits, s);
  double sum = 0;
  for (const auto& c : list) {
    sum += c.probability;
    if (sum > number) return c.token;
  }
  return list.empty() ? -1 : list.back().token;
}

TokenOut next_token(std::span<float> logits, const Sampling& s, const History& history,
                    std::span<const uint64_t> allowed) {
  const auto position = static_cast<int64_t>(history.tokens.size());
  if (s.top_logprobs < 0) {
    process(logits, s, history, allowed);
    return {.id = choose(logits, s, position)};
  }
  std::vector<float> changed(logits.begin(), logits.end());
  process(changed, s, history, allowed);
  const int32_t id = choose(changed, s, position);
  if (id < 0) return {};
  if (s.tempered_logprobs && s.temperature > 0)
    for (float& logit : logits) logit = static_cast<float>(logit / s.temperature);
  return log_probs(logits, id, s.top_logprobs);
}

double log_sum_exp(std::span<const float> logits) {
  const float high = vectors::largest(logits);
  if (!std::isfinite(high)) return high;
  return high + std::log(vectors::sum_of_exps(logits, high, 1));
}

TokenOut log_probs(std::span<const float> logits, int32_t token, int64_t top) {
  const double total = log_sum_exp(logits);
  const auto of = [&](int32_t t) { return static_cast<float>(logits[static_cast<size_t>(t)] - total); };
  TokenOut out{.id = token, .logprob = in(logits, token) ? of(token) : kNever, .top = {}};
  if (top > 0)
    for (const int32_t t : best(logits, static_cast<size_t>(top))) out.top.emplace_back(t, of(t));
  return out;
}

}  // namespace apus
