// SPDX-License-Identifier: Apache-2.0
// Tokens drawn where the logits are, against the rules of the host.
#include "ops/draw_tokens.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "base/random.h"
#include "engine/rows.h"
#include "engine/sampler.h"
#include "ops/op.h"
#include "tests/engine_host/drawn_rows.h"
#include "tests/ops/devices.h"

namespace apus::testing_draws {
namespace {

using Rules = std::vector<ops::DrawRule>;

at::Tensor tensor_of(const std::vector<std::vector<float>>& rows) {
  at::Tensor out = at::empty({std::ssize(rows), std::ssize(rows[0])}, at::kFloat);
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy(rows[i].begin(), rows[i].end(), out.data_ptr<float>() + static_cast<int64_t>(i) * out.size(1));
  return out;
}

TEST(DrawTokens, DrawsAsTheHost) {
  for (const auto& [name, rows] : kinds_of_rows(1500)) {
    const at::Tensor there = tensor_of(rows).to(ops::test::device().device);
    for (const Sampling& s : settings()) {
      Rules rules;
      for (size_t i = 0; i < rows.size(); ++i) rules.push_back(rule_of<ops::DrawRule>(s, static_cast<double>(i)));
      const at::Tensor got = ops::draw_tokens(there, rules).to(at::kCPU);
      ASSERT_EQ(got.sizes(), (std::vector<int64_t>{std::ssize(rows), 2}));
      for (size_t i = 0; i < rows.size(); ++i)
        expect_drawn(got.data_ptr<float>() + 2 * i, rows[i], s, name + ", row " + std::to_string(i));
    }
  }
}

TEST(DrawTokens, RulesNameTheirRows) {
  std::vector<std::vector<float>> rows(4, std::vector<float>(10, 0));
  for (size_t i = 0; i < rows.size(); ++i) rows[i][2 * i] = 5;
  const at::Tensor there = tensor_of(rows).to(ops::test::device().device).to(at::kBFloat16);
  const at::Tensor got =
      ops::draw_tokens(there, {{.row = 3, .temperature = 0}, {.row = 1, .temperature = 0}, {.row = 3, .top_k = 1}})
          .to(at::kCPU);
  EXPECT_EQ(got[0][0].item<float>(), 6);
  EXPECT_EQ(got[1][0].item<float>(), 2);
  EXPECT_EQ(got[2][0].item<float>(), 6);
  EXPECT_EQ(got[0][1].item<float>(), 0);  // nobody asked
}

TEST(DrawTokens, ShapeWithoutNumbers) {
  const at::Tensor logits = at::empty({3, 10}, at::kMeta);
  EXPECT_EQ(ops::draw_tokens(logits, Rules(2)).sizes(), (std::vector<int64_t>{2, 2}));
}

// The processor as a device that draws itself, by the reference, while this lives.
std::vector<double> asked_rows;  // of its last call
at::Tensor draw_and_tell(const at::Tensor& logits, const at::Tensor& rule) {
  asked_rows.clear();
  for (int64_t i = 0; i < rule.size(0); ++i) asked_rows.push_back(rule[i][0].item<double>());
  static const auto op = ops::handle<at::Tensor(const at::Tensor&, const at::Tensor&)>("apus::draw_tokens");
  return ops::call_reference(op, logits, rule);
}
struct ProcessorDraws {
  ProcessorDraws() : library(torch::Library::IMPL, "apus", c10::DispatchKey::CPU, __FILE__, __LINE__) {
    library.impl("draw_tokens", draw_and_tell);
  }
  torch::Library library;
};

struct OnlyEven : Constraint {
  void allowed(std::vector<uint64_t>& mask) override { mask.assign(8, 0x5555555555555555ull); }
  void accept(int32_t) override {}
  bool finished() const override { return false; }
  std::unique_ptr<Constraint> clone() const override { return std::make_unique<OnlyEven>(); }
};

// One row of each kind of request.
struct Requests {
  Requests() {
    for (int i = 0; i < 9; ++i) sampling.push_back({.temperature = 0.8, .seed = static_cast<uint64_t>(i)});
    sampling[0].temperature = 0;
    sampling[1].top_p = 0.9, sampling[1].top_logprobs = 0;
    sampling[2].top_logprobs = 3;
    sampling[3].repetition_penalty = 1.3;
    sampling[4].logit_bias = {{7, 3.f}};
    sampling[5].top_logprobs = 0, sampling[5].tempered_logprobs = true;
    sampling[6].min_new_tokens = 2, sampling[6].stop_ids = {1};
    sampling[7].min_new_tokens = 3, sampling[7].stop_ids = {1};
    counts.add_prompt(tokens);
    counts.add(7), counts.add(9);
  }
  std::vector<SampleRow> rows() {
    std::vector<SampleRow> out;
    for (const Sampling& s : sampling) out.push_back({&s, {tokens, 3, counts}, nullptr, {}, {}});
    out.back().constraint = &even;
    return out;
  }
  std::vector<int32_t> tokens{4, 5, 6, 7, 9};  // the last two are the answer's
  TokenCounts counts;
  OnlyEven even;
  std::vector<Sampling> sampling;
};

TEST(DrawTokens, TheSamplerDrawsThereWhatAsksForNoMore) {
  EXPECT_FALSE(ops::draws_tokens(at::kCPU));
  Requests requests;
  std::vector<std::vector<float>> numbers;
  for (uint64_t i = 0; i < requests.sampling.size(); ++i) numbers.push_back(normal_row(500, 20 + i, 3));
  const at::Tensor logits = tensor_of(numbers);
  Sampler sampler;
  std::vector<SampleRow> here = requests.rows(), there = requests.rows();
  sampler(logits, here);
  {
    const ProcessorDraws device;
    EXPECT_TRUE(ops::draws_tokens(at::kCPU));
    sampler(logits, there);
  }
  EXPECT_FALSE(ops::draws_tokens(at::kCPU));
  EXPECT_EQ(asked_rows, (std::vector<double>{0, 1, 5, 6}));
  for (size_t i = 0; i < here.size(); ++i) {
    EXPECT_GE(here[i].out.id, 0);
    EXPECT_EQ(here[i].out.id, there[i].out.id) << i;
    EXPECT_NEAR(here[i].out.logprob, there[i].out.logprob, 1e-5) << i;
    EXPECT_EQ(here[i].out.top.size(), there[i].out.top.size()) << i;
  }
  EXPECT_LT(there[1].out.logprob, 0);
  EXPECT_LT(there[5].out.logprob, 0);
}

TEST(DrawTokens, TheSamplerTellsOfRowsWithoutNumbers) {
  std::vector<float> broken(500, 0);
  broken[77] = std::numeric_limits<float>::quiet_NaN();
  Requests requests;
  std::vector<SampleRow> rows{requests.rows()[1], requests.rows()[5]};
  const ProcessorDraws device;
  Sampler()(tensor_of({broken, normal_row(500, 1, 1)}), rows);
  EXPECT_EQ(rows[0].out.id, -1);
  EXPECT_GE(rows[1].out.id, 0);
}

TEST(Rows, AreThoseAskedForInOrder) {
  const at::Tensor all = at::arange(200).view({100, 2});
  const auto same = [&](const std::vector<int64_t>& rows) {
    const at::Tensor got = rows_of(all, rows);
    ASSERT_EQ(got.size(0), std::ssize(rows));
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(got[static_cast<int64_t>(i)][0].item<int64_t>(), 2 * rows[i]);
  };
  same({5});
  same({3, 4, 5});
  same({7, 8, 2, 3, 50});
  std::vector<int64_t> scattered;
  for (int64_t i = 99; i >= 0; i -= 2) scattered.push_back(i);
  same(scattered);
}

}  // namespace
}  // namespace apus::testing_draws
