// SPDX-License-Identifier: Apache-2.0
// The engine with prompts that hold media: every placeholder stands for its own image, whatever chunks, preemption,
// sleep and the prefix cache do.
#include <gtest/gtest.h>

#include <future>

#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "tests/engine/fake_model.h"

namespace apus {
namespace {

using namespace testing_engine;

const std::vector<int32_t> kPlaceholders(30, 7);

TEST(EngineMedia, OtherImagesBehindTheSameIds) {
  FakeModel model;
  Engine engine(model, kOptions, spec(200, 5));
  const std::vector<std::pair<Media, int64_t>> asked = {
      {{{"cat", 6, 20}}, 0},   // blocks are of 4 tokens, steps of 5
      {{{"dog", 6, 20}}, 4},   // the block before the image
      {{{"cat", 6, 20}}, 28},  // all but the last
      {{{"cat", 7, 20}}, 4},  {{{"cat", 6, 3}, {"dog", 9, 17}}, 4}, {{}, 4}};
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto& [media, cached] = asked[i];
    const auto r = generate(engine, {{.prompt = kPlaceholders, .media = media, .sampling = greedy(6)}});
    EXPECT_EQ(r[0].ids(), answer(with_media(kPlaceholders, media), 6)) << i << ' ' << r[0].error;
    EXPECT_EQ(r[0].cached_tokens, cached) << i;
  }
}

TEST(EngineMedia, ManyAtOnceThroughASmallCacheThatSleeps) {
  FakeModel model;
  Engine engine(model, kOptions, spec(40, 12, 6));
  Random random(3, "media");
  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < 60; ++i) {
    std::vector<int32_t> p(10 + random.below(25), 7);
    const auto length = static_cast<int64_t>(p.size());
    Media media{{random.below(2) ? "cat" : "dog", 1, 5}};
    if (random.below(2)) media.push_back({random.below(2) ? "cat" : "dog", 6, length - 7});
    requests.push_back({.prompt = std::move(p), .media = std::move(media), .sampling = greedy(12)});
  }
  const auto wanted = requests;
  auto all = std::async(std::launch::async, [&] { return generate(engine, std::move(requests)); });
  for (int i = 0; i < 5; ++i) {
    engine.sleep();
    engine.wake();
  }
  const auto results = all.get();
  for (size_t i = 0; i < results.size(); ++i)
    EXPECT_EQ(results[i].ids(), answer(with_media(wanted[i].prompt, wanted[i].media), 12)) << i << results[i].error;
  EXPECT_GT(engine.stats().preemptions, 0);
  EXPECT_GT(engine.stats().cached_tokens, 0);
}

TEST(EngineMedia, RefusesSpansThatCannotBe) {
  FakeModel model;
  Engine engine(model, kOptions, spec());
  EXPECT_THROW(engine.submit({.prompt = {1, 2, 3}, .media = {{"cat", 2, 2}}}), Error);
  EXPECT_THROW(engine.submit({.prompt = {1, 2, 3}, .media = {{"cat", 0, 2}, {"dog", 1, 1}}}), Error);
  EXPECT_THROW(engine.submit({.prompt = {1, 2, 3}, .media = {{"", 0, 2}}}), Error);
}

// As m-rope counts: an image takes one place in time, and its parts differ in height and width.
class FakeMrope : public FakeModel {
 public:
  at::Tensor positions(const Inputs& in, const Step& s) const override {
    at::Tensor out = at::zeros({3, in.id_T.size(0)}, at::kLong);
    int64_t row = 0;
    for (size_t i = 0; i < s.length_q.size(); ++i)
      for (int64_t t = s.begin_q[i]; t < s.begin_q[i] + s.length_q[i]; ++t, ++row) {
        int64_t time = t, part = 0;
        for (const MediaItem& m : in.media.empty() ? Media{} : in.media[i]) {
          if (t >= m.begin + m.length) time -= m.length - 1;
          if (t >= m.begin && t < m.begin + m.length) part = t - m.begin, time -= part;
        }
        out[0][row] = time, out[1][row] = time + part / 2, out[2][row] = time + part % 2;
      }
    return out;
  }
};

TEST(EngineMedia, PositionsAreTheModelsOwn) {
  FakeMrope model;
  std::vector<std::vector<int64_t>> seen_positions(3);
  model.on_step = [&](const Step& s) {
    ASSERT_EQ(s.position.dim(), 2);
    for (size_t axis = 0; axis < 3; ++axis)
      for (int64_t t = 0; t < s.position.size(1); ++t)
        seen_positions[axis].push_back(s.position[static_cast<int64_t>(axis)][t].item<int64_t>());
  };
  Engine engine(model, kOptions, spec(64, 3, 3));
  const Media media{{"cat", 2, 6}};
  const auto p = prompt(1, 10);
  const auto r = generate(engine, {{.prompt = p, .media = media, .sampling = greedy(3)}});
  EXPECT_EQ(r[0].ids(), answer(with_media(p, media), 3)) << r[0].error;
  using Row = std::vector<int64_t>;
  // Two tokens, the image in parts of several steps, two tokens, and the answer but for its last one.
  EXPECT_EQ(seen_positions[0], (Row{0, 1, 2, 2, 2, 2, 2, 2, 3, 4, 5, 6}));
  EXPECT_EQ(seen_positions[1], (Row{0, 1, 2, 2, 3, 3, 4, 4, 3, 4, 5, 6}));
  EXPECT_EQ(seen_positions[2], (Row{0, 1, 2, 3, 2, 3, 2, 3, 3, 4, 5, 6}));
  for (Row& axis : seen_positions) axis.clear();
  generate(engine, {{.prompt = p, .media = media, .sampling = greedy(1)}});
  EXPECT_EQ(seen_positions[0], (Row{3, 4})) << "the image is in the cache, and still counts";
}

}  // namespace
}  // namespace apus
