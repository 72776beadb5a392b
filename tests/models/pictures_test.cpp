// SPDX-License-Identifier: Apache-2.0
// Layers that read pictures beside a text (Llama 3.2 Vision): what they are to texts without pictures, to adapters, to
// layers that run again, and what is kept of a picture in the engine.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>

#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "nn/lora.h"
#include "nn/training_step.h"
#include "parallel/recompute.h"
#include "tests/models/seeing_batch.h"

namespace apus {
namespace {

using golden::max_abs;
using golden::Packed;

class Pictures : public ::testing::Test {
 protected:
  Pictures() : c("mllama"), device(golden::device()) {
    loaded = load_model(c.dir / "checkpoint",
                        {.dtype = at::kFloat, .device = device, .own = [](const std::string&) { return true; }});
    model = dynamic_cast<SeeingDecoder*>(loaded.get());
    p = golden::unpad(c, "left");
    media = golden::media_of(c, p, "left", model->seeing());
  }
  Inputs inputs() const { return Inputs(golden::ids_tensor(p.flat, device), media); }
  Inputs row(size_t r) const { return Inputs(golden::ids_tensor(p.ids[r], device), {media[r]}); }
  Step step(const std::vector<int32_t>& lengths) const {
    Step s = packed_step(lengths, device);
    s.position = at::Tensor();
    return s;
  }
  std::vector<EngineRequest> requests(int64_t tokens) const {
    std::vector<EngineRequest> all;
    for (size_t r = 0; r < p.ids.size(); ++r)
      all.push_back({.prompt = {p.ids[r].begin(), p.ids[r].end()},
                     .media = media[r],
                     .sampling = {.temperature = 0, .max_new_tokens = tokens, .ignore_eos = true}});
    return all;
  }
  std::vector<std::vector<int32_t>> golden_answers() const {
    const at::Tensor wanted = c.tensor("gen/new_ids");
    std::vector<std::vector<int32_t>> all;
    for (int64_t r = 0; r < wanted.size(0); ++r) {
      const auto* ids = wanted.data_ptr<int64_t>() + r * wanted.size(1);
      all.emplace_back(ids, ids + wanted.size(1));
    }
    return all;
  }
  void expect_golden(Engine& engine) const {
    const auto wanted = golden_answers();
    const auto got = generate(engine, requests(std::ssize(wanted[0])));
    for (size_t r = 0; r < got.size(); ++r) EXPECT_EQ(got[r].ids(), wanted[r]) << r << got[r].error;
  }
  std::unique_ptr<Engine> engine(EngineSpec spec) const {
    if (spec.cache_bytes == 0) spec.cache_bytes = 4 << 20;
    return std::make_unique<Engine>(*loaded, at::TensorOptions().dtype(at::kFloat).device(device), spec);
  }
  // Of every linear layer, of the towers too.
  void attach(const std::string& name, uint64_t seed) {
    loaded->visit_modules([&](const std::string& module, Module& m) {
      auto* const linear = dynamic_cast<Linear*>(&m);
      if (!linear || module == "lm_head") return;
      const auto sides = linear->sides();
      auto lora = std::make_unique<Lora>(Lora::Spec{.in = sides.in, .out = sides.out, .rank = 2, .alpha = 2}, nullptr);
      at::manual_seed(seed++);
      const auto options = at::TensorOptions().dtype(at::kFloat);
      lora->a().data = at::randn({2, sides.in}, options).mul(0.3).to(device);
      lora->b().data = at::randn({sides.out, 2}, options).mul(0.3).to(device);
      linear->attach(name, std::move(lora));
    });
  }
  golden::Case c;
  c10::Device device;
  std::unique_ptr<Model> loaded;
  SeeingDecoder* model = nullptr;
  Packed p;
  Inputs::Media media;
};

TEST_F(Pictures, TextsWithoutThemPassTheirLayers) {
  at::NoGradGuard no_grad;
  const std::vector<int64_t> text = {5, 9, 3, 8};
  Step alone = step({4}), beside = step({4, p.lengths[1]});
  const at::Tensor wanted = model->forward(golden::ids_tensor(text, device), alone);
  EXPECT_FALSE(alone.pictures);
  std::vector<int64_t> both = text;
  both.insert(both.end(), p.ids[1].begin(), p.ids[1].end());
  const at::Tensor got = model->forward(Inputs(golden::ids_tensor(both, device), {{}, media[1]}), beside);
  EXPECT_LT(max_abs(got.narrow(0, 0, 4), wanted), 2e-6);
  const at::Tensor x_TD = at::randn({4, wanted.size(1)}, wanted.options());
  EXPECT_TRUE(at::equal(model->layer(1, x_TD, alone), x_TD));
}

// Their layers take part in every backward pass, and change nothing.
TEST_F(Pictures, LayersMeetTheBackwardPassOfTexts) {
  loaded->visit([](const std::string&, Param& param) { param.data.set_requires_grad(true); });
  Step s = step({4});
  set_training(s, {});
  const at::Tensor hidden = model->forward(golden::ids_tensor({5, 9, 3, 8}, device), s);
  hidden.sum().backward();
  loaded->visit([](const std::string& name, Param& param) {
    if (name.find("cross_attn") == std::string::npos) return;
    ASSERT_TRUE(param.data.grad().defined()) << name;
    EXPECT_EQ(param.data.grad().abs().max().item<double>(), 0) << name;
  });
  at::NoGradGuard no_grad;
  Step plain = step({4});
  EXPECT_LT(max_abs(hidden, model->forward(golden::ids_tensor({5, 9, 3, 8}, device), plain)), 1e-6);
}

TEST_F(Pictures, LayersThatRunAgainGiveTheSameGradients) {
  loaded->visit([](const std::string&, Param& param) { param.data.set_requires_grad(true); });
  const auto gradients = [&](bool again) {
    loaded->visit([](const std::string&, Param& param) { param.data.mutable_grad() = at::Tensor(); });
    RecomputeRunner runner([&](int64_t) { return again ? std::optional(Memo::Kinds{}) : std::nullopt; },
                           std::make_shared<LayerRunner>());
    Step s = step(p.lengths);
    set_training(s, {});
    run_layers(*model, inputs(), s, runner).square().sum().backward();
    std::map<std::string, at::Tensor> all;
    loaded->visit([&](const std::string& name, Param& param) {
      if (param.data.grad().defined()) all[name] = param.data.grad().clone();
    });
    return all;
  };
  const auto wanted = gradients(false), got = gradients(true);
  ASSERT_EQ(wanted.size(), got.size());
  EXPECT_GT(wanted.at("model.vision_model.patch_embedding.weight").abs().max().item<double>(), 0);
  for (const auto& [name, grad] : wanted)
    EXPECT_LT(max_abs(got.at(name), grad), 1e-5 * (1 + grad.abs().max().item<double>())) << name;
}

// A picture is another one through another adapter: to its text, and to nobody else.
TEST_F(Pictures, AdaptersSeeTheirOwn) {
  at::NoGradGuard no_grad;
  attach("one", 1), attach("two", 100);
  Inputs::Media same = {media[1], media[1]};
  std::vector<int64_t> both = p.ids[1];
  both.insert(both.end(), p.ids[1].begin(), p.ids[1].end());
  const int64_t length = p.lengths[1];
  Step together = step({p.lengths[1], p.lengths[1]});
  together.routed = true;
  const auto rows = [&](int64_t first) {
    return at::arange(first, first + length, at::TensorOptions(device).dtype(at::kLong));
  };
  together.adapters = {{"one", rows(0)}, {"two", rows(length)}};
  const at::Tensor all = model->forward(Inputs(golden::ids_tensor(both, device), same), together);
  EXPECT_EQ(together.pictures->pictures.size(), 2u);
  std::vector<at::Tensor> alone;
  for (const char* name : {"one", "two"}) {
    Step own = step({p.lengths[1]});
    own.routed = true, own.adapters = {{name, rows(0)}};
    alone.push_back(model->forward(row(1), own));
  }
  EXPECT_GT(max_abs(alone[0], alone[1]), 0.1);
  for (int64_t i = 0; i < 2; ++i)
    EXPECT_LT(max_abs(all.narrow(0, i * length, length), alone[static_cast<size_t>(i)]), 1e-4) << i;
}

// Fewer are kept than texts need: they are looked at again, and answers are the same. And no more texts run at a time
// than whose pictures are kept, unless one alone has more.
TEST_F(Pictures, AreKeptBesideTheCache) {
  const auto few = engine({.block_size = 4, .max_step_tokens = 4, .max_sequences = 4});
  model->keep_pictures(1);
  expect_golden(*few);
  const auto one = engine({.block_size = 4, .max_sequences = 1});  // one of two texts has three
  expect_golden(*one);
  EXPECT_EQ(one->stats().preemptions, 0);
}

// Blocks run out while both are answered: what gives way is read again with its pictures.
TEST_F(Pictures, StayWithTextsThatAreReadAgain) {
  const auto wanted = golden_answers();
  const int64_t longest = std::max(p.lengths[0], p.lengths[1]) + std::ssize(wanted[0]);
  const auto size = KvCache::bytes_per_block(cache_spec(loaded->shape(), 1, 4), 4);
  const auto e = engine({.block_size = 4, .max_sequences = 4, .cache_bytes = size * (longest / 4 + 2)});
  expect_golden(*e);
  EXPECT_GT(e->stats().preemptions, 0);
}

// Tokens before a picture see it too: with another one nothing of the text is the same.
TEST_F(Pictures, PrefixesAreSharedWithEqualOnesAlone) {
  const auto e = engine({.block_size = 4});
  expect_golden(*e);
  auto other = std::make_shared<MediaContent>(*media[0].back().content);
  for (float& value : other->values) value = 1 - value;
  other->digest = "another";
  std::vector<EngineRequest> changed = requests(4);
  changed.resize(1);
  changed[0].media.back().content = other, changed[0].media.back().digest = other->digest;
  const auto got = generate(*e, std::move(changed));
  EXPECT_EQ(got[0].error, "");
  EXPECT_EQ(got[0].cached_tokens, 0);
  expect_golden(*e);
  EXPECT_GT(e->stats().cached_tokens, 0);
}

}  // namespace
}  // namespace apus
