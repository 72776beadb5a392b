// SPDX-License-Identifier: Apache-2.0
// The engine on the golden checkpoints: greedy answers are transformers' own, whatever the batch, the chunks, the
// blocks, preemption and the prefix cache do.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/prompt_words.h"
#include "checkpoint/adapter.h"
#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "tests/models/golden_batch.h"
#include "tests/refusal.h"

namespace apus {
namespace {

class GoldenEngine : public ::testing::TestWithParam<std::string> {
 protected:
  GoldenEngine() : c(GetParam()), device(golden::device()) {
    model = load_model(c.dir / "checkpoint",
                       {.dtype = at::kFloat, .device = device, .own = [](const std::string&) { return true; }});
    const auto rows = golden::unpad(c, "gen");
    const at::Tensor ids = c.tensor("gen/new_ids");
    for (size_t r = 0; r < rows.ids.size(); ++r) {
      prompts.emplace_back(rows.ids[r].begin(), rows.ids[r].end());
      const auto* row = ids.data_ptr<int64_t>() + static_cast<int64_t>(r) * ids.size(1);
      wanted.emplace_back(row, row + ids.size(1));
    }
    greedy.max_new_tokens = ids.size(1);
  }
  std::unique_ptr<Engine> engine(EngineSpec spec) const {
    return std::make_unique<Engine>(*model, at::TensorOptions().dtype(at::kFloat).device(device), spec);
  }
  int64_t bytes(int64_t blocks, int64_t block_size) const {
    return blocks * KvCache::bytes_per_block(cache_spec(model->shape(), 0, block_size), 4);
  }
  void expect_golden(Engine& e) const {
    const auto got = generate(e, prompts, greedy);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].error, "");
      EXPECT_EQ(got[i].ids(), wanted[i]) << "row " << i;
    }
  }
  golden::Case c;
  c10::Device device;
  std::unique_ptr<Model> model;
  std::vector<std::vector<int32_t>> prompts, wanted;
  Sampling greedy{.temperature = 0, .ignore_eos = true};
};

TEST_P(GoldenEngine, GreedyInOneBatch) {
  const auto e = engine({.cache_bytes = bytes(64, 16)});
  expect_golden(*e);
  expect_golden(*e);  // the second time from the prefix cache
}

// A recording that does the work itself again, as a device would with the same memory.
struct Repeated final : Recording {
  explicit Repeated(std::function<void()> w) : work(std::move(w)) {}
  void play() override { work(), ++played; }
  std::function<void()> work;
  inline static int played = 0;
};

TEST_P(GoldenEngine, GreedyByRecordedSteps) {
  if (device.is_cuda()) GTEST_SKIP() << "its own recordings are tested by all others";
  ModelHooks hooks;
  hooks.recorder = [](const std::function<void()>& work, const Recording*) {
    work();
    return std::make_unique<Repeated>(work);
  };
  for (const bool ahead : {false, true}) {
    const EngineSpec spec{.cache_bytes = bytes(64, 16), .run_ahead = ahead};
    Engine e(*model, at::TensorOptions().dtype(at::kFloat).device(device), spec, hooks);
    Repeated::played = 0;
    expect_golden(e);
    expect_golden(e);  // with recordings that are there already
    const bool possible = model->steps_are_alike() && model->shape().state.numbers() == 0;
    if (device.is_cpu()) EXPECT_EQ(Repeated::played > 0, possible);
  }
}

TEST_P(GoldenEngine, GreedyOneStepBehind) {
  const auto e = engine(
      {.block_size = 4, .max_step_tokens = 8, .max_sequences = 3, .cache_bytes = bytes(64, 4), .run_ahead = true});
  expect_golden(*e);
  expect_golden(*e);
}

TEST_P(GoldenEngine, GreedyWhereStepsCannotBeRecorded) {
  ModelHooks hooks;
  int tried = 0;
  hooks.recorder = [&](const std::function<void()>&, const Recording*) -> std::unique_ptr<Recording> {
    ++tried;
    fail(Fault::Device, "this work waits for the device");
  };
  Engine e(*model, at::TensorOptions().dtype(at::kFloat).device(device), {.cache_bytes = bytes(64, 16)}, hooks);
  expect_golden(e);
  EXPECT_LE(tried, 1) << "once is enough to know";
}

TEST_P(GoldenEngine, GreedyWithGuesses) {
  const auto e = engine({.cache_bytes = bytes(64, 16), .draft = {.tokens = 4, .longest = 2}});
  expect_golden(*e);
}

TEST_P(GoldenEngine, GreedyInSmallChunks) {
  const auto e = engine({.block_size = 4, .max_step_tokens = 3, .max_sequences = 3, .cache_bytes = bytes(64, 4)});
  expect_golden(*e);
}

// A longer prompt with the same beginning takes from the cache only what is the same in it.
TEST_P(GoldenEngine, GreedyAfterOtherPromptsWithTheSameBeginning) {
  const auto e = engine({.block_size = 2, .cache_bytes = bytes(128, 2)});
  std::vector<std::vector<int32_t>> longer = prompts;
  for (auto& p : longer) p.insert(p.end(), {5, 6, 7});
  for (const auto& r : generate(*e, longer, greedy)) EXPECT_EQ(r.error, "");
  expect_golden(*e);
}

TEST_P(GoldenEngine, GreedyOneByOne) {
  const auto e = engine({.max_sequences = 1, .cache_bytes = bytes(64, 16), .prefix_caching = false});
  expect_golden(*e);
}

TEST_P(GoldenEngine, GreedyWithPreemption) {
  const auto& keeps = model->shape().keeps;
  if (!keeps.empty() && std::none_of(keeps.begin(), keeps.end(), keeps_tokens))
    GTEST_SKIP() << "no layer keeps tokens, so that nobody has to make room";
  // Blocks for all prompts, and for any one answer alone, but not for all answers.
  size_t longest = 0, together = 0;
  for (const auto& p : prompts) longest = std::max(longest, p.size()), together += p.size() / 2 + 1;
  const auto blocks = static_cast<int64_t>(std::max(together, (longest + wanted[0].size()) / 2)) + 2;
  const auto e = engine({.block_size = 2,
                         .max_step_tokens = 8,
                         .max_sequences = 8,
                         .cache_bytes = bytes(blocks, 2),
                         .prefix_caching = false});
  // On a busy machine requests come so late that earlier ones have ended: asked again until some had to make room.
  for (int tries = 0; tries < 50 && e->stats().preemptions == 0; ++tries) {
    if (tries > 0) e->wake();
    expect_golden(*e);
    e->sleep();  // the statistics after all of it
  }
  EXPECT_GT(e->stats().preemptions, 0);
}

TEST_P(GoldenEngine, LogProbsAreThoseOfTheGoldenLogits) {
  const auto e = engine({.cache_bytes = bytes(64, 16)});
  Sampling s = greedy;
  s.top_logprobs = 3;
  const auto got = generate(*e, prompts, s);
  const double tolerance = GetParam() == "qwen3_next" ? 4e-3 : 6e-4;  // token by token against chunks
  for (size_t r = 0; r < prompts.size(); ++r)
    for (size_t n = 0; n < wanted[r].size(); ++n) {
      const at::Tensor logits = c.tensor("gen/step_logits")[static_cast<int64_t>(n)][static_cast<int64_t>(r)];
      const at::Tensor expected = logits.log_softmax(-1);
      ASSERT_EQ(got[r].tokens[n].top.size(), 3u);
      EXPECT_NEAR(got[r].tokens[n].logprob, expected[wanted[r][n]].item<double>(), tolerance);
      for (const auto& [id, logprob] : got[r].tokens[n].top)
        EXPECT_NEAR(logprob, expected[id].item<double>(), tolerance);
    }
}

// Base and three adapters in one batch: each answers as it does alone, and as PEFT does.
TEST(ManyAdapters, OneBatchEqualsEachAlone) {
  const golden::Case c("lora_qwen2");
  const auto options = at::TensorOptions().dtype(at::kFloat).device(golden::device());
  const auto model =
      load_model(c.dir / "checkpoint",
                 {.dtype = at::kFloat, .device = golden::device(), .own = [](const std::string&) { return true; }});
  model->visit_modules([](const std::string&, Module& m) { m.prepare_inference(); });
  Engine engine(*model, options, {.block_size = 4, .max_step_tokens = 16, .max_sequences = 16, .cache_bytes = 1 << 20},
                {.load =
                     [&](const std::string& name, const std::string& dir) {
                       load_adapter_beside(*model, dir, name, at::kFloat, [&](const std::string& weight) {
                         return TensorFolder(c.dir / "checkpoint").tensor(weight);
                       });
                     },
                 .unload = [&](const std::string& name) { detach_adapter(*model, name); }});
  const auto rows = golden::unpad(c, "gen");
  const Sampling greedy{.temperature = 0, .max_new_tokens = 16, .ignore_eos = true};
  const auto ask = [&](const std::vector<std::string>& names) {
    std::vector<EngineRequest> requests;
    for (const auto& name : names)
      for (const auto& row : rows.ids)
        requests.push_back({.prompt = {row.begin(), row.end()}, .sampling = greedy, .adapter = name});
    std::vector<std::vector<int32_t>> answers;
    for (auto& r : generate(engine, std::move(requests))) {
      EXPECT_EQ(r.error, "");
      answers.push_back(r.ids());
    }
    return answers;
  };
  const auto golden_answers = [&](const std::string& kind) {
    const at::Tensor ids = c.tensor(kind + "/gen_new_ids");
    std::vector<std::vector<int32_t>> out;
    for (int64_t r = 0; r < ids.size(0); ++r)
      out.emplace_back(ids.data_ptr<int64_t>() + r * ids.size(1), ids.data_ptr<int64_t>() + (r + 1) * ids.size(1));
    return out;
  };
  const auto base = ask({""});
  std::vector<std::vector<int32_t>> wanted = base;
  const std::vector<std::string> kinds = {"lora", "dora", "rslora"};
  for (const auto& kind : kinds) {
    engine.load_adapter(kind, (c.dir / ("adapter_" + kind)).string());
    for (auto& answer : golden_answers(kind)) wanted.push_back(std::move(answer));
  }
  EXPECT_THROW(engine.load_adapter("bad", (c.dir / "checkpoint").string()), Error);
  EXPECT_EQ(ask({"", "lora", "dora", "rslora"}), wanted);
  EXPECT_EQ(ask({"", "lora", "dora", "rslora"}), wanted) << "from a prefix cache that each has for itself";
  engine.unload_adapter("lora");
  EXPECT_THROW(ask({"lora"}), Error);
  engine.load_adapter("lora", (c.dir / "adapter_rslora").string());  // the name again, another adapter
  EXPECT_EQ(ask({"lora"}), golden_answers("rslora"));
  for (const auto& kind : kinds) engine.unload_adapter(kind);
  EXPECT_EQ(ask({""}), base);
}

// Requests with a trained prompt, without one and with LoRA in one batch; lengths, log-probabilities and cached tokens
// are of what was asked.
TEST(ManyAdapters, ATrainedPromptStandsBeforeRequestsOfItsOwn) {
  const golden::Case c("lora_qwen2");
  const auto options = at::TensorOptions().dtype(at::kFloat).device(golden::device());
  const auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
  EngineSpec spec{.block_size = 4, .max_step_tokens = 16, .max_sequences = 16, .cache_bytes = 1 << 20};
  const ModelHooks hooks{
      .load = [&](const std::string& name,
                  const std::string& dir) { load_adapter_beside(*model, dir, name, at::kFloat, {}); },
      .unload = [&](const std::string& name) { detach_adapter(*model, name); }};
  const auto rows = golden::unpad(c, "gen");
  const std::vector<int32_t> text(rows.ids[0].begin(), rows.ids[0].end());
  // Read whole, token after token.
  const auto read = [&](std::vector<int32_t> ids, const std::string& adapter) {
    c10::AutoGradMode no_grad(false);
    put_prompt_before(ids, model->prompt_words(adapter));
    Step step = packed_step({static_cast<int32_t>(ids.size())}, golden::device());
    step.routed = true;
    if (!adapter.empty())
      step.adapters = {{adapter, at::arange(std::ssize(ids), at::TensorOptions(at::kLong).device(golden::device()))}};
    const at::Tensor hidden = model->forward(golden::ids_tensor({ids.begin(), ids.end()}, golden::device()), step);
    return model->head(hidden, Step{})
        .narrow(0, model->prompt_words(adapter), std::ssize(ids) - model->prompt_words(adapter))
        .log_softmax(-1)
        .cpu();
  };
  Engine engine(*model, options, spec, hooks);
  const std::vector<std::string> names = {"", "prompt", "lora", "prompt"};
  engine.load_adapter("prompt", (c.dir / "adapter_prompt_tuning").string());
  engine.load_adapter("lora", (c.dir / "adapter_lora").string());
  std::vector<EngineRequest> requests;
  for (const std::string& name : names)
    requests.push_back({.prompt = text,
                        .sampling = {.temperature = 0, .max_new_tokens = 6, .ignore_eos = true, .prompt_logprobs = 0},
                        .adapter = name});
  const auto got = generate(engine, std::move(requests));
  std::set<std::vector<int32_t>> different;
  for (size_t i = 0; i < names.size(); ++i) {
    std::vector<int32_t> ids = text;
    for (const int32_t id : got[i].ids()) {
      EXPECT_EQ(id, read(ids, names[i])[-1].argmax().item<int64_t>()) << names[i];
      ids.push_back(id);
    }
    different.insert(got[i].ids());
    const at::Tensor scores = read(text, names[i]);
    ASSERT_EQ(got[i].prompt.size(), text.size()) << names[i];
    for (size_t t = 1; t < text.size(); ++t)
      EXPECT_NEAR(got[i].prompt[t].logprob, scores[static_cast<int64_t>(t) - 1][text[t]].item<double>(), 1e-4);
  }
  EXPECT_EQ(different.size(), 3U);

  const auto again = generate(engine, {{.prompt = text, .sampling = {.temperature = 0}, .adapter = "prompt"}});
  EXPECT_GT(again[0].cached_tokens, 0);
  EXPECT_LT(again[0].cached_tokens, std::ssize(text));
  const std::vector<int32_t> longest(static_cast<size_t>(engine.max_model_len() - 3), 1);
  EXPECT_NO_THROW(engine.submit({.prompt = longest}));
  test::expect_says(test::refusal(Fault::Usage, [&] { engine.submit({.prompt = longest, .adapter = "prompt"}); }),
                    "and the 5 words of the adapter leave no room");
}

INSTANTIATE_TEST_SUITE_P(Text, GoldenEngine, ::testing::ValuesIn(golden::text_models()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace apus
