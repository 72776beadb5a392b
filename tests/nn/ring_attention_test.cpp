// SPDX-License-Identifier: Apache-2.0
// Keys and values that go round, against attention of one process: by the ring alone and together with heads that ranks
// share out, over packed sequences of which some are shorter than there are pieces.
#include "nn/ring_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <set>

#include "nn/token_share.h"
#include "tests/fake_mesh.h"
#include "tests/ops/devices.h"

namespace apus {
namespace {

using ops::test::device;
using ops::test::expect_close;
using ops::test::normal;
using ops::test::placed;
using ops::test::tolerance;

constexpr double kUnseen = -std::numeric_limits<double>::infinity();

class PartsTest : public ::testing::TestWithParam<at::ScalarType> {};

// Three sequences, each of whose keys are two sets.
TEST_P(PartsTest, TwoSetsOfKeysAreJoinedAsOne) {
  const at::ScalarType type = GetParam();
  if (!device().device.is_cpu() && !device().kind->supports(type)) GTEST_SKIP() << "no such type there";
  const std::vector<int64_t> queries{5, 1, 3};
  const at::Tensor q = placed(normal({9, 4, 8}, 1), type), grad = placed(normal({9, 4, 8}, 4), type);
  const ops::AttentionRule rule{.scale = 0.4, .mask = {.causal = false}};
  struct Keys {
    at::Tensor k, v;
    ops::PackedRuns runs;
  };
  const auto keys = [&](const std::vector<std::vector<int64_t>>& sets) {  // of each sequence, by their seeds
    Keys out;
    std::vector<at::Tensor> k, v;
    std::vector<int64_t> lengths;
    for (const auto& seeds : sets) {
      lengths.push_back(0);
      for (const int64_t seed : seeds) {
        k.push_back(normal({seed, 2, 8}, 10 + seed)), v.push_back(normal({seed, 2, 8}, 20 + seed));
        lengths.back() += seed;
      }
    }
    out.k = placed(at::cat(k), type), out.v = placed(at::cat(v), type);
    out.runs = {ops::test::cumulative(queries), ops::test::cumulative(lengths), 5,
                *std::max_element(lengths.begin(), lengths.end())};
    return out;
  };
  const Keys first = keys({{2}, {4}, {1}}), second = keys({{7}, {3}, {6}}), all = keys({{2, 7}, {4, 3}, {1, 6}});
  const auto over = [&](const Keys& seen) { return ops::attention_part(q, seen.k, seen.v, seen.runs, rule); };
  const ops::Attended whole = over(all), both = joined(over(first), over(second));
  const double limit = 2 * tolerance(type);
  expect_close(both.out_TNH, ops::test::exact(whole.out_TNH), limit, "out");
  expect_close(both.lse_NT, ops::test::exact(whole.lse_NT), limit, "lse");
  const auto gradient = [&](const Keys& seen) {
    return ops::attention_part_gradient(grad, q, seen.k, seen.v, {both.out_TNH.to(type), both.lse_NT}, seen.runs, rule);
  };
  const auto d = gradient(all), a = gradient(first), b = gradient(second);
  expect_close(a.q_TNH + b.q_TNH, ops::test::exact(d.q_TNH), limit, "gradient of queries");
  const auto by_sequence = [](const at::Tensor& x, const at::Tensor& y) {
    return at::cat({x.narrow(0, 0, 2), y.narrow(0, 0, 7), x.narrow(0, 2, 4), y.narrow(0, 7, 3), x.narrow(0, 6, 1),
                    y.narrow(0, 10, 6)});
  };
  expect_close(by_sequence(a.k_TKH, b.k_TKH), ops::test::exact(d.k_TKH), limit, "gradient of keys");
  expect_close(by_sequence(a.v_TKH, b.v_TKH), ops::test::exact(d.v_TKH), limit, "gradient of values");
}
INSTANTIATE_TEST_SUITE_P(Types, PartsTest, ::testing::Values(at::kFloat, at::kDouble, at::kBFloat16),
                         [](const auto& info) { return std::string(float_type_name(info.param)); });

TEST(RingAttention, NothingSeenChangesNothing) {
  const ops::Attended some{normal({5, 4, 6}, 1), normal({4, 5}, 2)},
      nothing{at::zeros({5, 4, 6}, at::kDouble), at::full({4, 5}, kUnseen, at::kDouble)};
  for (const ops::Attended& same : {joined(some, nothing), joined(nothing, some)}) {
    EXPECT_TRUE(same.out_TNH.equal(some.out_TNH));
    EXPECT_TRUE(same.lse_NT.equal(some.lse_NT));
  }
  const ops::Attended none = joined(nothing, nothing);
  EXPECT_TRUE(none.out_TNH.equal(nothing.out_TNH));
  EXPECT_TRUE(none.lse_NT.equal(nothing.lse_NT));
}

const std::vector<int32_t> kLengths{13, 1, 30, 3, 8};
constexpr int64_t kRowTokens = 55;

TEST(RingAttention, EveryTokenHasOneRankAndEveryPairIsAskedOnce) {
  for (const int ranks : {2, 3, 4})
    for (const int64_t window : {0, 1, 2, 5, 11, 100}) {
      const ops::Mask mask{true, window};
      int64_t tokens = 0;
      for (int r = 0; r < ranks; ++r) {
        const auto queries = zigzag(kLengths, r, ranks);
        tokens += tokens_of(queries);
        std::vector<std::vector<int>> seen(kLengths.size(), std::vector<int>(30 * 30));  // by query and key
        const auto place = [](const std::vector<TokenRun>& runs, int64_t row) {
          for (const TokenRun& run : runs)
            if (row < run.row + run.size) return std::pair(run.sequence, run.begin + row - run.row);
          return std::pair<int64_t, int64_t>(-1, 0);
        };
        for (int other = 0; other < ranks; ++other) {
          const auto keys = zigzag(kLengths, other, ranks);
          for (const RingCall& c : ring_calls(queries, keys, mask)) {
            std::set<int64_t> asked;
            for (size_t i = 0; i < c.q.size(); ++i)
              for (int64_t a = 0; a < c.q[i].size; ++a) {
                const auto [s, query] = place(queries, c.q[i].begin + a);
                EXPECT_TRUE(asked.insert(c.q[i].begin + a).second) << "a query twice in a call";
                for (int64_t b = 0; b < c.k[i].size; ++b) {
                  const int64_t position = c.k[i].size - c.q[i].size + a;  // as the operator counts
                  if (c.mask.causal && b > position) continue;
                  if (c.mask.window > 0 && position - b >= c.mask.window) continue;
                  const auto [of, key] = place(keys, c.k[i].begin + b);
                  ASSERT_EQ(of, s);
                  ++seen[static_cast<size_t>(s)][static_cast<size_t>(query * 30 + key)];
                }
              }
          }
        }
        for (const TokenRun& run : queries)
          for (int64_t query = run.begin; query < run.end(); ++query)
            for (int64_t key = 0; key < 30; ++key) {
              const bool sees = key <= query && (window == 0 || query - key < window);
              ASSERT_EQ(seen[static_cast<size_t>(run.sequence)][static_cast<size_t>(query * 30 + key)], sees)
                  << ranks << " ranks, window " << window << ", query " << query << ", key " << key;
            }
      }
      EXPECT_EQ(tokens, kRowTokens);
    }
  // A long text alone: each rank's queries see as many keys as any other's.
  for (int r = 0; r < 4; ++r) {
    int64_t pairs = 0;
    for (const TokenRun& run : zigzag({64}, r, 4)) pairs += run.size * (run.begin + run.end() + 1) / 2;
    EXPECT_EQ(pairs, 64 * 65 / 2 / 4);
  }
}

TEST(RingAttention, KeysThatNobodySeesDoNotComeBy) {
  test::on_fake_ranks({.cp = 4}, 4, [&](MeshView& mesh) {
    const Ring ring(mesh.comm(Axis::Cp), 1, {64});  // pieces of 8 tokens
    using Steps = std::vector<int>;
    EXPECT_EQ(ring.steps({true, 0}), (Steps{0, 1, 2, 3}));
    EXPECT_EQ(ring.steps({true, 1}), (Steps{0}));
    EXPECT_EQ(ring.steps({true, 2}), (Steps{0, 1, 3}));
    EXPECT_EQ(ring.steps({true, 9}), (Steps{0, 1, 3}));
    EXPECT_EQ(ring.steps({true, 10}), (Steps{0, 1, 2, 3}));
    for (const int64_t window : {0, 1, 2, 9, 10})
      for (int step = 0; step < 4; ++step) {
        const auto steps = ring.steps({true, window});
        const bool passed_over = std::find(steps.begin(), steps.end(), step) == steps.end();
        EXPECT_TRUE(!passed_over || ring.calls(ring.before(step), {true, window}, at::kCPU).empty());
      }
  });
}

struct RingCase {
  const char* name;
  int groups = 2, sharers = 1;  // of ranks; ranks of each, which share out heads
  int64_t kv_heads = 2;
  int64_t window = 0;
  double softcap = 0;
  bool sinks = false;
  int64_t values = 8;
  bool known = false;  // the forward pass is run again with its result at hand
};
void PrintTo(const RingCase& c, std::ostream* out) { *out << c.name; }

class RingTest : public ::testing::TestWithParam<std::tuple<RingCase, at::ScalarType>> {};

TEST_P(RingTest, EqualsOneProcess) {
  const RingCase& c = std::get<0>(GetParam());
  const at::ScalarType type = std::get<1>(GetParam());
  if (!device().device.is_cpu() && !device().kind->supports(type)) GTEST_SKIP() << "no such type there";
  const std::vector<int64_t> lengths(kLengths.begin(), kLengths.end());
  ops::AttentionRule rule{.scale = 0.35, .mask = {.causal = true, .window = c.window}, .softcap = c.softcap};
  const auto inputs = [&] {
    std::vector<at::Tensor> x{placed(normal({kRowTokens, 4, 8}, 1), type),
                              placed(normal({kRowTokens, c.kv_heads, 8}, 2), type),
                              placed(normal({kRowTokens, c.kv_heads, c.values}, 3), type)};
    if (c.sinks) x.push_back(placed(normal({4}, 4), type));
    for (at::Tensor& t : x) t.requires_grad_();
    return x;
  };
  const at::Tensor grad = placed(normal({kRowTokens, 4, c.values}, 5), type);
  const auto x = inputs();
  if (c.sinks) rule.sinks_N = x[3];
  const at::Tensor cu = ops::test::cumulative(lengths), y = ops::attention(x[0], x[1], x[2], cu, cu, 30, 30, rule);
  // Fake ranks are threads, and a device has one thread for gradients: theirs are compared on a processor.
  const bool learns = device().device.is_cpu();
  const at::NoGradGuard none;
  at::GradMode::set_enabled(learns);
  if (learns) y.backward(grad);

  std::mutex mutex;
  std::vector<at::Tensor> found, sums(x.size());
  test::on_fake_ranks({.cp = c.groups * c.sharers}, c.groups * c.sharers, [&](MeshView& mesh) {
    at::GradMode::set_enabled(learns);
    const TokenShare share(mesh.comm(Axis::Cp), kLengths, c.groups, device().device);
    const auto own = inputs();
    const auto heads = share.all_tokens({share.narrowed(own[0]), share.narrowed(own[1]), share.narrowed(own[2])});
    ops::AttentionRule here = rule;
    if (c.sinks) here.sinks_N = share.own_heads(own[3], c.kv_heads);
    ops::Attended kept;
    if (c.known) {
      const at::NoGradGuard first;
      ring_attention(heads.q, heads.k, heads.v, here, share.ring(), &kept);
    }
    const at::Tensor z = ring_attention(heads.q, heads.k, heads.v, here, share.ring(), c.known ? &kept : nullptr);
    const at::Tensor out = share.own_tokens(z, 4, c.kv_heads);
    const at::Tensor whole = share.gathered(out);
    if (learns) out.backward(share.narrowed(grad));
    const std::lock_guard lock(mutex);
    found.push_back(whole.detach());
    if (!learns) return;
    for (size_t i = 0; i < own.size(); ++i) sums[i] = sums[i].defined() ? sums[i] + own[i].grad() : own[i].grad();
  });
  const double limit = 2 * tolerance(type);
  for (const at::Tensor& whole : found) expect_close(whole, ops::test::exact(y), limit, "out");
  for (size_t i = 0; learns && i < x.size(); ++i)
    expect_close(sums[i], ops::test::exact(x[i].grad()), 2 * limit, "gradient " + std::to_string(i));
}

const std::vector<RingCase> ring_cases{
    {.name = "two", .groups = 2},
    {.name = "three", .groups = 3},
    {.name = "four_of_one_key_head", .groups = 4, .kv_heads = 1},
    {.name = "two_of_two", .groups = 2, .sharers = 2},
    {.name = "window", .groups = 3, .window = 5},
    {.name = "narrow_window_of_two", .groups = 2, .sharers = 2, .window = 2},
    {.name = "keys_passed_over", .groups = 5, .window = 2},
    {.name = "own_keys_alone", .groups = 3, .window = 1, .sinks = true},
    {.name = "softcap", .groups = 2, .softcap = 1.5},
    {.name = "sinks", .groups = 2, .sinks = true},
    {.name = "sinks_of_two_in_windows", .groups = 2, .sharers = 2, .window = 7, .sinks = true},
    {.name = "short_values", .groups = 2, .kv_heads = 4, .values = 5},
    {.name = "known", .groups = 2, .known = true}};
INSTANTIATE_TEST_SUITE_P(Cases, RingTest,
                         ::testing::Combine(::testing::ValuesIn(ring_cases),
                                            ::testing::Values(at::kFloat, at::kDouble, at::kBFloat16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  float_type_name(std::get<1>(info.param));
                         });

TEST(TokenShare, PutsTokensBackInTheirOrder) {
  test::on_fake_ranks({.cp = 4}, 4, [&](MeshView& mesh) {
    const TokenShare share(mesh.comm(Axis::Cp), kLengths, 2, at::kCPU);
    EXPECT_TRUE(share.all_have_some());
    const at::Tensor all = at::arange(kRowTokens, at::kLong), own = share.narrowed(all);
    EXPECT_TRUE(share.gathered(own.to(at::kFloat).unsqueeze(1)).flatten().equal(all.to(at::kFloat)));
    const at::Tensor labels = share.own_labels(all);
    EXPECT_EQ(labels.ge(0).sum().item<int64_t>(), own.size(0));
    EXPECT_TRUE(labels.index_select(0, own).equal(own));
    const auto places = share.places(at::arange(5, 40, at::kLong));
    EXPECT_TRUE(own.index_select(0, places.own).equal(places.which + 5));
  });
  test::on_fake_ranks({.cp = 4}, 4, [&](MeshView& mesh) {
    EXPECT_FALSE(TokenShare(mesh.comm(Axis::Cp), {1, 2}, 4, at::kCPU).all_have_some());
  });
}

}  // namespace
}  // namespace apus
