// SPDX-License-Identifier: Apache-2.0
// Sampling rules against transformers' logits processors (golden numbers), and by their own laws.
#include "engine/answer/sampling_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "base/random.h"
#include "tests/paths.h"

namespace apus {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The golden tensors are few: they are read here without the tensor library.
class Golden : public ::testing::Test {
 protected:
  Golden() : bytes_(read_file(test::source_dir() / "tests/data/models/extras/golden.safetensors")) {
    uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), 8);
    header_ = Json::parse(bytes_.substr(8, length));
    data_ = 8 + length;
    logits = rows<float>("logits");
    prefix = rows<int64_t>("prefix_ids");
  }
  template <class T>
  std::vector<std::vector<T>> rows(const std::string& name) const {
    const auto& e = header_.at("logits_processors/" + name);
    const auto begin = e.at("data_offsets")[0].get<size_t>(), width = e.at("shape")[1].get<size_t>();
    std::vector<std::vector<T>> out(e.at("shape")[0].get<size_t>(), std::vector<T>(width));
    for (size_t r = 0; r < out.size(); ++r)
      std::memcpy(out[r].data(), bytes_.data() + data_ + begin + r * width * sizeof(T), width * sizeof(T));
    return out;
  }
  // What the filters leave, in the shape of transformers' answer: -inf for those who are out (-1e30 in the file).
  static std::vector<float> filtered(const std::vector<float>& row, const Sampling& s) {
    std::vector<float> out(row.size(), -1e30f);
    for (const auto& c : candidates(row, s)) out[static_cast<size_t>(c.token)] = c.logit;
    return out;
  }
  void expect_rows(const std::string& name, const std::function<std::vector<float>(size_t)>& made) const {
    const auto wanted = rows<float>(name);
    for (size_t r = 0; r < wanted.size(); ++r) {
      const auto got = made(r);
      for (size_t i = 0; i < wanted[r].size(); ++i)
        if (wanted[r][i] < -1e29f)
          EXPECT_LT(got[i], -1e29f) << name << " row " << r << " token " << i;
        else
          EXPECT_NEAR(got[i], wanted[r][i], 2e-6 * std::max(1.0f, std::abs(wanted[r][i])))
              << name << " row " << r << " token " << i;
    }
  }
  std::vector<int32_t> tokens(size_t r) const { return {prefix[r].begin(), prefix[r].end()}; }
  std::vector<float> processed(size_t r, const Sampling& s) const {
    TokenCounts counts;
    const auto seen = tokens(r);
    counts.add_prompt(seen);
    auto row = logits[r];
    process(row, s, {seen, static_cast<int64_t>(seen.size()), counts});
    return row;
  }
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<int64_t>> prefix;

 private:
  std::string bytes_;
  Json header_;
  size_t data_ = 0;
};

TEST_F(Golden, Temperature) {
  expect_rows("temperature=0.7", [&](size_t r) { return filtered(logits[r], {.temperature = 0.7}); });
}
TEST_F(Golden, TopK) {
  expect_rows("top_k=5", [&](size_t r) { return filtered(logits[r], {.top_k = 5}); });
}
TEST_F(Golden, TopP) {
  expect_rows("top_p=0.8", [&](size_t r) { return filtered(logits[r], {.top_p = 0.8}); });
}
TEST_F(Golden, MinP) {
  expect_rows("min_p=0.1", [&](size_t r) { return filtered(logits[r], {.min_p = 0.1}); });
}
TEST_F(Golden, RepetitionPenalty) {
  expect_rows("repetition_penalty=1.3", [&](size_t r) { return processed(r, {.repetition_penalty = 1.3}); });
}
TEST_F(Golden, NoRepeatNgram) {
  expect_rows("no_repeat_ngram=3", [&](size_t r) { return processed(r, {.no_repeat_ngram_size = 3}); });
}
TEST_F(Golden, AllTogether) {
  const Sampling s{.temperature = 0.7, .top_p = 0.8, .top_k = 5, .repetition_penalty = 1.3};
  expect_rows("all(rep1.3,temp0.7,topk5,topp0.8)/probs", [&](size_t r) {
    std::vector<float> out(logits[r].size(), 0);
    for (const auto& c : candidates(processed(r, s), s))
      out[static_cast<size_t>(c.token)] = static_cast<float>(c.probability);
    return out;
  });
}

std::vector<float> random_row(uint64_t seed, size_t size, double spread = 3) {
  Random random(seed);
  std::vector<float> out(size);
  for (float& x : out) x = static_cast<float>(spread * random.normal());
  return out;
}

// The filters by their definitions on a fully sorted row, in double precision.
std::vector<int32_t> slow_candidates(const std::vector<float>& row, const Sampling& s) {
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)]; });
  if (s.top_k > 0) {
    size_t n = std::min(order.size(), static_cast<size_t>(s.top_k));
    while (n < order.size() && row[static_cast<size_t>(order[n])] == row[static_cast<size_t>(order[n - 1])]) ++n;
    order.resize(n);
  }
  const auto p = [&](int32_t t) { return std::exp(row[static_cast<size_t>(t)] / s.temperature); };
  double total = 0, sum = 0;
  for (const int32_t t : order) total += p(t);
  std::vector<int32_t> out;
  for (const int32_t t : order) {
    if (s.top_p < 1 && !out.empty() && sum >= s.top_p * total) break;
    if (!out.empty() && p(t) < s.min_p * p(order[0])) break;
    out.push_back(t);
    sum += p(t);
  }
  return out;
}

TEST(SamplingRules, CandidatesAgreeWithTheDefinition) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed, "settings");
    auto row = random_row(seed, 1 + random.below(3000), 0.1 + 4 * random.uniform());
    if (random.below(3) == 0)
      for (float& x : row) x = std::round(x);  // many equals
    Sampling s{.temperature = 0.3 + 1.5 * random.uniform()};
    if (random.below(2)) s.top_k = static_cast<int64_t>(1 + random.below(60));
    if (random.below(2)) s.top_p = 0.05 + 0.94 * random.uniform();
    if (random.below(2)) s.min_p = 0.3 * random.uniform();
    const auto wanted = slow_candidates(row, s);
    const auto got = candidates(row, s);
    ASSERT_EQ(got.size(), wanted.size()) << seed << " of " << row.size() << ": temperature " << s.temperature
                                         << " top_k " << s.top_k << " top_p " << s.top_p << " min_p " << s.min_p;
    double sum = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].token, wanted[i]) << seed;
      sum += got[i].probability;
    }
    ASSERT_NEAR(sum, 1, 1e-9);
  }
}

// Of the probabilities among the tokens that the other filters left, as transformers' EpsilonLogitsWarper has it.
TEST(SamplingRules, EpsilonCutoffLeavesOutTheImprobable) {
  const auto ids = [](const Sampling& s) {
    std::vector<int32_t> out;
    // Probabilities 0.5, 0.25, 0.125, 0.0625, 0.0625, in another order.
    const std::vector<float> row = {std::log(0.125f), std::log(0.0625f), std::log(0.5f), std::log(0.25f),
                                    std::log(0.0625f)};
    for (const auto& c : candidates(row, s)) out.push_back(c.token);
    return out;
  };
  EXPECT_EQ(ids({.epsilon_cutoff = 0.05}).size(), 5u);
  EXPECT_EQ(ids({.epsilon_cutoff = 0.1}), (std::vector<int32_t>{2, 3, 0}));
  EXPECT_EQ(ids({.epsilon_cutoff = 0.3}), std::vector<int32_t>{2});
  EXPECT_EQ(ids({.epsilon_cutoff = 0.9}), std::vector<int32_t>{2}) << "the likeliest stays";
  EXPECT_EQ(ids({.epsilon_cutoff = 0.3, .top_k = 2}), (std::vector<int32_t>{2, 3})) << "two thirds and one third";
  EXPECT_EQ(ids({.min_p = 0.4, .epsilon_cutoff = 0.34}), std::vector<int32_t>{2});
  const std::vector<float> equals = {1, 1, 0};
  EXPECT_EQ(candidates(equals, {.epsilon_cutoff = 0.9}).size(), 2u) << "and so do its equals";
}

TEST(SamplingRules, DrawsFollowTheProbabilities) {
  const auto row = random_row(3, 12, 1);
  for (const Sampling& s : {Sampling{.temperature = 0.8}, Sampling{.temperature = 0.8, .top_k = 5},
                            Sampling{.temperature = 0.8, .top_p = 0.7}, Sampling{.temperature = 1.3, .min_p = 0.2},
                            Sampling{.temperature = 0.9, .epsilon_cutoff = 0.05}}) {
    std::vector<double> count(row.size());
    constexpr int kDraws = 40000;
    for (int i = 0; i < kDraws; ++i) ++count[static_cast<size_t>(choose(row, s, i))];
    double sum = 0;
    for (const auto& c : candidates(row, s)) {
      EXPECT_NEAR(count[static_cast<size_t>(c.token)] / kDraws, c.probability, 0.01);
      sum += count[static_cast<size_t>(c.token)];
    }
    EXPECT_EQ(sum, kDraws) << "a token outside the candidates was drawn";
  }
}

TEST(SamplingRules, DrawsDependOnSeedAndPositionAlone) {
  const auto row = random_row(5, 5000, 1);
  std::set<int32_t> of_positions, of_seeds;
  for (int i = 0; i < 50; ++i) {
    of_positions.insert(choose(row, {.seed = 1}, i));
    of_seeds.insert(choose(row, {.seed = static_cast<uint64_t>(i)}, 0));
    EXPECT_EQ(choose(row, {.seed = 9}, i), choose(row, {.seed = 9}, i));
    const double u = draw_number(4, i);
    EXPECT_TRUE(u >= 0 && u < 1);
  }
  EXPECT_GT(of_positions.size(), 40u);
  EXPECT_GT(of_seeds.size(), 40u);
}

TEST(SamplingRules, GreedyTakesTheFirstOfEquals) {
  EXPECT_EQ(choose(std::vector<float>{1, 3, 3, 2}, {.temperature = 0}, 0), 1);
  EXPECT_EQ(choose(std::vector<float>{kNever, kNever}, {.temperature = 0}, 0), -1);
  EXPECT_EQ(choose(std::vector<float>{kNever, kNever}, {}, 0), -1);
  EXPECT_EQ(choose(std::vector<float>{1, std::nanf("")}, {.temperature = 0}, 0), -1);
  EXPECT_EQ(choose(std::vector<float>{1, std::nanf("")}, {.top_k = 1}, 0), -1);
  for (const Sampling& s : {Sampling{}, Sampling{.top_k = 3}, Sampling{.top_p = 0.5}, Sampling{.min_p = 0.5}})
    EXPECT_EQ(choose(std::vector<float>{kNever, 2, kNever}, s, 7), 1);
}

TEST(SamplingRules, SomeTokensAreNeverTakenAndSomeNeverFirst) {
  const Sampling s{.temperature = 0, .never = {0, 90}, .never_first = {1}};
  const TokenCounts counts;
  const std::vector<int32_t> text{7, 7, 7};
  const auto best = [&](int64_t prompt) {
    std::vector<float> row{3, 2, 1};
    const History history{text, prompt, counts};
    EXPECT_FALSE(plain_greedy(s, false) || changes_nothing(s, history, false));
    return next_token(row, s, history).id;
  };
  EXPECT_EQ(best(3), 2);
  EXPECT_EQ(best(2), 1);
}

TEST(SamplingRules, TinyTemperatureIsGreedyAndDoesNotOverflow) {
  const auto row = random_row(8, 100);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(choose(row, {.temperature = 1e-9, .top_p = 0.9}, i), choose(row, {.temperature = 0}, i));
}

TEST(SamplingRules, PenaltiesCountTheAnswerButRepetitionAlsoThePrompt) {
  TokenCounts counts;
  counts.add_prompt(std::vector<int32_t>{0, 1, 1, 77});  // 77 is outside this vocabulary
  counts.add(1);
  counts.add(2);
  counts.add(2);
  std::vector<float> row{2, -2, 2, 2};
  apply_penalties(row, counts, {.repetition_penalty = 2, .presence_penalty = 0.5, .frequency_penalty = 0.25});
  EXPECT_EQ(row, (std::vector<float>{1, -4.75f, 0, 2}));
}

TEST(SamplingRules, MinimumLengthHoldsTheStopTokensBack) {
  const std::vector<int32_t> tokens{5, 6, 7};
  const Sampling s{.min_new_tokens = 2, .stop_ids = {1}};
  const TokenCounts none;
  std::vector<float> row{0, 9};
  process(row, s, {tokens, 2, none});
  EXPECT_EQ(row[1], kNever);
  row = {0, 9};
  process(row, s, {tokens, 1, none});
  EXPECT_EQ(row[1], 9);
}

TEST(SamplingRules, BiasAndMask) {
  std::vector<float> row(130, 0);
  apply_bias(row, {.logit_bias = {{3, 5.0f}, {500, 1.0f}, {-1, 1.0f}}});
  EXPECT_EQ(row[3], 5);
  apply_mask(row, std::vector<uint64_t>{~uint64_t{0}, uint64_t{1} << 6});
  EXPECT_EQ(row[3], 5);
  EXPECT_EQ(row[70], 0);
  EXPECT_EQ(row[71], kNever);
  EXPECT_EQ(row[128], kNever) << "beyond the mask's end";
}

TEST(SamplingRules, Ngrams) {
  const std::vector<int32_t> t{1, 2, 3, 1, 2, 4, 1, 2};
  EXPECT_EQ(repeats(t, 3), (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(repeats(t, 1).size(), t.size());
  EXPECT_TRUE(repeats(t, 9).empty());
  EXPECT_TRUE(repeats(t, 0).empty());
  EXPECT_EQ(repeats(std::vector<int32_t>{2, 2, 2}, 2), (std::vector<int32_t>{2, 2}));
}

TEST(SamplingRules, LogProbs) {
  const std::vector<float> row{1, 3, kNever, 3, 2};
  const TokenOut out = log_probs(row, 0, 3);
  const double total = std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0));
  EXPECT_NEAR(out.logprob, 1 - total, 1e-6);
  ASSERT_EQ(out.top.size(), 3u);
  EXPECT_EQ(out.top[0].first, 1);
  EXPECT_EQ(out.top[1].first, 3);
  EXPECT_EQ(out.top[2].first, 4);
  EXPECT_NEAR(out.top[2].second, 2 - total, 1e-6);
  EXPECT_EQ(log_probs(row, 0, 100).top.size(), 4u) << "what cannot come is not listed";
}

// What is drawn comes with its probability in the distribution that it was drawn from.
TEST(SamplingRules, LogProbsAtTheTemperature) {
  const std::vector<float> row{1, 3, 0, 2};
  Sampling s;
  s.temperature = 0.5, s.top_logprobs = 0;
  const TokenCounts counts;
  const auto drawn = [&] {
    std::vector<float> logits = row;
    return next_token(logits, s, {.tokens = {}, .prompt = 0, .counts = counts});
  };
  const TokenOut plain = drawn();
  s.tempered_logprobs = true;
  const TokenOut tempered = drawn();
  ASSERT_EQ(plain.id, tempered.id);
  const auto expected = [&](double temperature) {
    double total = 0;
    for (const float x : row) total += std::exp(x / temperature);
    return row[static_cast<size_t>(plain.id)] / temperature - std::log(total);
  };
  EXPECT_NEAR(plain.logprob, expected(1), 1e-6);
  EXPECT_NEAR(tempered.logprob, expected(0.5), 1e-6);
}

TEST(SamplingRules, PlainGreedyOnlyWhenNothingTouchesTheLogits) {
  EXPECT_TRUE(plain_greedy({.temperature = 0}, false));
  EXPECT_FALSE(plain_greedy({.temperature = 0}, true));
  EXPECT_FALSE(plain_greedy({.temperature = 1}, false));
  EXPECT_FALSE(plain_greedy({.temperature = 0, .repetition_penalty = 1.1}, false));
  EXPECT_FALSE(plain_greedy({.temperature = 0, .min_new_tokens = 1}, false));
  EXPECT_FALSE(plain_greedy({.temperature = 0, .logit_bias = {{1, 1.0f}}}, false));
  EXPECT_FALSE(plain_greedy({.temperature = 0, .top_logprobs = 0}, false));
}

}  // namespace
}  // namespace apus
