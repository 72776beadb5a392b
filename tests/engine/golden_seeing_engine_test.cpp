// SPDX-License-Identifier: Apache-2.0
// The engine on prompts with images and videos: greedy answers are transformers' own, whatever chunks, blocks and the
// prefix cache do.
#include <gtest/gtest.h>

#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "tests/models/seeing_batch.h"

namespace apus {
namespace {

class GoldenSeeingEngine : public ::testing::TestWithParam<std::string> {
 protected:
  GoldenSeeingEngine() : c(GetParam()), device(golden::device()) {
    loaded = load_model(c.dir / "checkpoint",
                        {.dtype = at::kFloat, .device = device, .own = [](const std::string&) { return true; }});
    model = dynamic_cast<SeeingDecoder*>(loaded.get());
  }
  // The prompts of a case, and after them what transformers answers.
  void expect_golden(Engine& engine, const std::string& prompts, const std::string& answers) const {
    const golden::Packed p = golden::unpad(c, prompts);
    const Inputs::Media media = golden::media_of(c, p, prompts, model->seeing());
    const at::Tensor wanted = c.tensor(answers + "/new_ids");
    std::vector<EngineRequest> requests;
    for (size_t r = 0; r < p.ids.size(); ++r)
      requests.push_back({.prompt = {p.ids[r].begin(), p.ids[r].end()},
                          .media = media[r],
                          .sampling = {.temperature = 0, .max_new_tokens = wanted.size(1), .ignore_eos = true}});
    const auto got = generate(engine, std::move(requests));
    for (size_t r = 0; r < got.size(); ++r) {
      EXPECT_EQ(got[r].error, "");
      const auto* row = wanted.data_ptr<int64_t>() + static_cast<int64_t>(r) * wanted.size(1);
      EXPECT_EQ(got[r].ids(), std::vector<int32_t>(row, row + wanted.size(1))) << answers << ", row " << r;
    }
  }
  std::unique_ptr<Engine> engine(EngineSpec spec) const {
    spec.cache_bytes = 4 << 20;
    return std::make_unique<Engine>(*loaded, at::TensorOptions().dtype(at::kFloat).device(device), spec);
  }
  golden::Case c;
  c10::Device device;
  std::unique_ptr<Model> loaded;
  SeeingDecoder* model = nullptr;
};

TEST_P(GoldenSeeingEngine, Images) {
  const auto e = engine({.block_size = 4});
  expect_golden(*e, "left", "gen");
  const int64_t cached = e->stats().cached_tokens;
  expect_golden(*e, "left", "gen");
  // What layers with states have read is not kept for the next prompt.
  if (loaded->shape().keeps.empty())
    EXPECT_GT(e->stats().cached_tokens, cached) << "the second time from the prefix cache";
}

TEST_P(GoldenSeeingEngine, Videos) {
  if (!c.has("gen_video/new_ids")) GTEST_SKIP() << "no answers about videos in the file";
  const auto e = engine({});
  expect_golden(*e, "video", "gen_video");
}

// Prompts in chunks of three tokens: every image is read in several steps, and looked at once.
TEST_P(GoldenSeeingEngine, InSmallChunks) {
  const auto e = engine({.block_size = 4, .max_step_tokens = 3, .max_sequences = 3});
  expect_golden(*e, "left", "gen");
  if (c.has("gen_video/new_ids")) expect_golden(*e, "video", "gen_video");
}

// A video whose own sound stands among its frames, read at once and token by token.
TEST_P(GoldenSeeingEngine, AVideoWithItsSound) {
  if (!c.has("audio_in_video/input_ids")) GTEST_SKIP() << "it does not hear";
  const golden::Packed p = golden::unpad(c, "audio_in_video");
  const Inputs::Media media = golden::media_of(c, p, "audio_in_video", model->seeing());
  std::vector<std::vector<int32_t>> answers;
  for (const int64_t tokens : {1000, 3}) {
    const auto e = engine({.block_size = 4, .max_step_tokens = tokens, .max_sequences = 3});
    std::vector<EngineRequest> requests(1);
    requests[0].prompt.assign(p.ids[0].begin(), p.ids[0].end());
    requests[0].media = media[0];
    requests[0].sampling = {.temperature = 0, .max_new_tokens = 8, .ignore_eos = true};
    const auto got = generate(*e, std::move(requests));
    EXPECT_EQ(got[0].error, "");
    answers.push_back(got[0].ids());
  }
  EXPECT_EQ(answers[0].size(), 8u);
  EXPECT_EQ(answers[0], answers[1]);
}

// Of equal ids with other images nothing behind the first image is shared.
TEST_P(GoldenSeeingEngine, OtherImagesInTheSameText) {
  const auto e = engine({.block_size = 4});
  const golden::Packed p = golden::unpad(c, "left");
  Inputs::Media media = golden::media_of(c, p, "left", model->seeing());
  auto other = std::make_shared<MediaContent>(*media[0][0].content);
  for (float& value : other->values) value = 1 - value;
  other->digest = "another image";
  std::vector<MediaItem> changed = media[0];
  changed[0].content = other, changed[0].digest = other->digest;
  std::vector<EngineRequest> requests(1);
  requests[0].prompt.assign(p.ids[0].begin(), p.ids[0].end());
  requests[0].media = changed;
  requests[0].sampling = {.temperature = 0, .max_new_tokens = 4, .ignore_eos = true};
  EXPECT_EQ(generate(*e, std::move(requests))[0].error, "");
  expect_golden(*e, "left", "gen");
}

INSTANTIATE_TEST_SUITE_P(Seeing, GoldenSeeingEngine, ::testing::ValuesIn(golden::seeing_models()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace apus
