// SPDX-License-Identifier: Apache-2.0
// A model that lies on several devices answers as on one: with its own weights, with an adapter of a request, and after
// its weights were given back and read again.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "cli/infer.h"
#include "engine/answer/answer_all.h"
#include "run/inference.h"
#include "tests/golden.h"
#include "tests/refusal.h"
#include "tests/run/loud_adapter.h"
#include "tests/run/tiny_model.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

class DeviceMaps : public ::testing::Test {
 protected:
  DeviceMaps() : dir(fs::temp_directory_path() / str("apus-device-map-", ::getpid())) {
    fs::remove_all(dir);
    EXPECT_EQ(test::init_tiny_model(dir / "model"), 0);
    test::save_loud_adapter(dir / "model", dir / "adapter");
  }
  ~DeviceMaps() override { fs::remove_all(dir); }

  Inference open(const std::string& device, const std::string& map) const {
    InferOptions o;
    o.model.model = (dir / "model").string();
    o.model.torch_dtype = "float32";
    o.model.device = device, o.placement.device_map = map, o.engine.kv_cache_gb = 0.01;
    return open_inference(o.model, o.placement, "", o.prompt, o.engine);
  }
  static std::vector<std::vector<int32_t>> answers(Inference& in, const std::string& adapter = "") {
    Sampling greedy;
    greedy.temperature = 0, greedy.max_new_tokens = 6, greedy.ignore_eos = true;
    std::vector<EngineRequest> requests;
    for (const auto& prompt : std::vector<std::vector<int32_t>>{{5, 6, 7, 8}, {9, 10}, std::vector<int32_t>(70, 11)})
      requests.push_back({.prompt = prompt, .sampling = greedy, .adapter = adapter});
    std::vector<std::vector<int32_t>> out;
    for (const auto& g : generate(*in.engine, std::move(requests))) {
      EXPECT_EQ(g.finish, Finish::Length) << g.error;
      out.push_back(g.ids());
    }
    return out;
  }
  const fs::path dir;
};

TEST_F(DeviceMaps, AnswersAdaptersAndSleepAreThoseOfOneDevice) {
  Inference one = open("cpu", "");
  one.engine->load_adapter("other", (dir / "adapter").string());
  const auto plain = answers(one), adapted = answers(one, "other");
  EXPECT_NE(plain, adapted);

  const bool host = golden::device().is_cpu();
  Inference several =
      open(kind_of(golden::device()).name(),
           host ? "auto" : R"({"": 0, "model.layers.1": 1, "model.layers.2": "cpu", "model.norm": 3, "lm_head": 2})");
  ASSERT_TRUE(several.loaded.spread);
  EXPECT_EQ(several.loaded.spread->several(), !host);
  EXPECT_EQ(answers(several), plain);
  several.engine->load_adapter("other", (dir / "adapter").string());
  EXPECT_EQ(answers(several, "other"), adapted);
  EXPECT_EQ(answers(several), plain);
  several.engine->sleep(2);
  several.engine->wake();
  EXPECT_EQ(answers(several), plain);
  EXPECT_EQ(answers(several, "other"), adapted);
}

TEST_F(DeviceMaps, WhatIsNotThereIsRefusedBeforeAnythingIsLoaded) {
  const std::string kind = kind_of(golden::device()).name();
  for (const char* map : {R"({"": 99})", R"({"": 0, "model.layer.1": 0})", R"({"model": "toaster:0"})"}) {
    SCOPED_TRACE(map);
    test::refusal(Fault::Usage, [&] { open(kind, map); });
  }
}

}  // namespace
}  // namespace apus
