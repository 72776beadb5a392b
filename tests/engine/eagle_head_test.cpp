// SPDX-License-Identifier: Apache-2.0
// Eagle-3 heads from folders of their own, and the model without some layers: what they compute, and that answers stay
// what they are.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "checkpoint/load_eagle.h"
#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "models/layer_runner.h"
#include "tensor/safetensors.h"
#include "tests/folder.h"
#include "tests/models/golden_batch.h"
#include "tests/refusal.h"

namespace apus {
namespace {

constexpr int64_t kHidden = 48, kHeads = 4, kKeyHeads = 2, kHead = 12, kFfn = 40, kWords = 30;

using Tensors = std::map<std::string, at::Tensor>;

Json eagle_config() {
  return {{"architectures", {"LlamaForCausalLMEagle3"}},
          {"model_type", "llama"},
          {"hidden_size", kHidden},
          {"intermediate_size", kFfn},
          {"num_attention_heads", kHeads},
          {"num_key_value_heads", kKeyHeads},
          {"num_hidden_layers", 1},
          {"vocab_size", 160},
          {"draft_vocab_size", kWords},
          {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},
          {"hidden_act", "silu"},
          {"eagle_config", {{"eagle_aux_hidden_state_layer_ids", {0, 1, 2}}}}};
}

Tensors eagle_tensors() {
  at::manual_seed(5);
  const auto some = [](std::initializer_list<int64_t> shape) { return at::randn(shape, at::kFloat) * 0.3; };
  return {{"fc.weight", some({kHidden, 3 * kHidden})},
          {"midlayer.input_layernorm.weight", some({kHidden})},
          {"midlayer.hidden_norm.weight", some({kHidden})},
          {"midlayer.self_attn.q_proj.weight", some({kHeads * kHead, 2 * kHidden})},
          {"midlayer.self_attn.k_proj.weight", some({kKeyHeads * kHead, 2 * kHidden})},
          {"midlayer.self_attn.v_proj.weight", some({kKeyHeads * kHead, 2 * kHidden})},
          {"midlayer.self_attn.o_proj.weight", some({kHidden, kHeads * kHead})},
          {"midlayer.post_attention_layernorm.weight", some({kHidden})},
          {"midlayer.mlp.gate_proj.weight", some({kFfn, kHidden})},
          {"midlayer.mlp.up_proj.weight", some({kFfn, kHidden})},
          {"midlayer.mlp.down_proj.weight", some({kHidden, kFfn})},
          {"norm.weight", some({kHidden})},
          {"lm_head.weight", some({kWords, kHidden})},
          {"d2t", at::arange(kWords, at::kLong) * 3 + 2}};
}

void write(const std::filesystem::path& dir, const Json& config, const Tensors& tensors) {
  write_file_atomic(dir / "config.json", config.dump());
  write_safetensors(dir / "model.safetensors", {tensors.begin(), tensors.end()});
}

// A head whose guesses are written down.
struct Spy final : GuessHead {
  explicit Spy(std::shared_ptr<const GuessHead> head) : head(std::move(head)) {}
  const ModelShape& shape() const override { return head->shape(); }
  std::vector<int64_t> layers_seen() const override { return head->layers_seen(); }
  at::Tensor begin(const at::Tensor& seen_TA) const override { return head->begin(seen_TA); }
  at::Tensor states(const Model& m, const Inputs& next, const at::Tensor& state_TD, Step& s) const override {
    return head->states(m, next, state_TD, s);
  }
  at::Tensor logits(const Model& m, const at::Tensor& state_RD) const override {
    const at::Tensor logits_RV = head->logits(m, state_RD);
    guesses.push_back(logits_RV[0].argmax().item<int64_t>());
    return logits_RV;
  }
  std::shared_ptr<const GuessHead> head;
  mutable std::vector<int64_t> guesses;
};

struct Keeping final : RunnerAround {
  at::Tensor layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) override {
    return behind.emplace_back(RunnerAround::layer(model, i, x_TD, s));
  }
  std::vector<at::Tensor> behind;
};

class Guessing : public ::testing::TestWithParam<const char*> {
 protected:
  explicit Guessing(const char* name)
      : model(load_model(golden::models() / name / "checkpoint",
                         {.dtype = at::kFloat, .device = device, .own = [](const auto&) { return true; }})) {}
  Guessing() : Guessing(GetParam()) {}
  Inputs inputs(const std::vector<int64_t>& ids) const { return Inputs(golden::ids_tensor(ids, device)); }
  std::vector<FinishedAnswer> answers(const DraftSpec& draft, double temperature, ModelHooks hooks = {},
                                      EngineStats* stats = nullptr) const {
    Engine engine(*model, at::TensorOptions().dtype(at::kFloat).device(device),
                  {.block_size = 4, .max_step_tokens = 16, .max_sequences = 5, .cache_bytes = 1 << 20, .draft = draft},
                  std::move(hooks));
    std::vector<EngineRequest> all;
    for (uint64_t i = 0; i < 7; ++i) {
      EngineRequest r{.sampling = {.temperature = temperature, .max_new_tokens = 14, .ignore_eos = true}};
      r.sampling.seed = 10 + i;
      for (uint64_t t = 0; t < 1 + 5 * i; ++t) r.prompt.push_back(static_cast<int32_t>(3 + (t * t + t * (i % 3)) % 90));
      all.push_back(std::move(r));
    }
    auto got = generate(engine, std::move(all));
    engine.sleep();
    if (stats) *stats = engine.stats();
    return got;
  }
  void expect_no_change(const DraftSpec& draft, const ModelHooks& hooks = {}) const {
    for (const double temperature : {0.0, 1.0}) {
      EngineStats stats;
      const auto wanted = answers({}, temperature), got = answers(draft, temperature, hooks, &stats);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].error, "");
        EXPECT_EQ(got[i].ids(), wanted[i].ids()) << i;
      }
      EXPECT_GT(stats.drafted_tokens, 0);
      EXPECT_EQ(stats.failed_steps, 0);
    }
  }
  const c10::Device device = golden::device();
  std::unique_ptr<Model> model;
};

struct Eagle : Guessing {
  Eagle() : Guessing("glm4_moe") {}
  std::shared_ptr<const GuessHead> head(const Json& config, const Tensors& tensors) const {
    test::Folder folder;
    write(folder.path, config, tensors);
    return load_eagle(folder.path, model->shape(), at::kFloat, device);
  }
};

at::Tensor normed(const at::Tensor& x_TD, const at::Tensor& scale_D) {
  return x_TD * (x_TD * x_TD).mean(1, true).add(1e-5).rsqrt() * scale_D;
}

at::Tensor silu(const at::Tensor& x) { return x * x.sigmoid(); }

// Of texts of one token attention gives the values themselves.
TEST_F(Eagle, ReadsTokenAndStateSideBySide) {
  Tensors t = eagle_tensors();
  for (const bool normed_sum : {false, true}) {
    Json config = eagle_config();
    config["norm_before_residual"] = normed_sum;
    const auto head = this->head(config, t);
    const at::Tensor seen_TA = at::randn({3, 3 * kHidden}), state_TD = seen_TA.mm(t["fc.weight"].t());
    Step step = packed_step({1, 1, 1}, device);
    const at::Tensor got_TD = head->states(*model, inputs({7, 90, 31}), head->begin(seen_TA.to(device)), step).cpu();
    const at::Tensor before_TD = normed(state_TD, t["midlayer.hidden_norm.weight"]),
                     token_TD =
                         normed(model->embed(inputs({7, 90, 31}), step).cpu(), t["midlayer.input_layernorm.weight"]),
                     both_TD = at::cat({token_TD, before_TD}, 1),
                     value_TKH = both_TD.mm(t["midlayer.self_attn.v_proj.weight"].t()).view({3, kKeyHeads, kHead}),
                     all_TA = value_TKH.repeat_interleave(kHeads / kKeyHeads, 1).reshape({3, kHeads * kHead}),
                     sum_TD =
                         (normed_sum ? before_TD : state_TD) + all_TA.mm(t["midlayer.self_attn.o_proj.weight"].t()),
                     fed_TD = normed(sum_TD, t["midlayer.post_attention_layernorm.weight"]),
                     inner_TF = silu(fed_TD.mm(t["midlayer.mlp.gate_proj.weight"].t())) *
                                fed_TD.mm(t["midlayer.mlp.up_proj.weight"].t()),
                     wanted_TD = sum_TD + inner_TF.mm(t["midlayer.mlp.down_proj.weight"].t());
    EXPECT_LT((got_TD - wanted_TD).abs().max().item<double>(), 1e-3);
    const at::Tensor logits_RV = head->logits(*model, got_TD.to(device)).cpu(),
                     own_RW = normed(wanted_TD, t["norm.weight"]).mm(t["lm_head.weight"].t());
    EXPECT_EQ(logits_RV.size(1), 160);
    EXPECT_LT((logits_RV.index_select(1, at::arange(kWords, at::kLong) * 4 + 2) - own_RW).abs().max().item<double>(),
              1e-3);
    EXPECT_EQ(logits_RV[0][3].item<float>(), -std::numeric_limits<float>::infinity());
  }
}

TEST_F(Eagle, ChangesNoAnswer) {
  for (const int64_t tokens : {1, 4}) {
    const ModelHooks hooks{.guess_head = head(eagle_config(), eagle_tensors())};
    expect_no_change({.tokens = tokens, .by = DraftSpec::By::Eagle}, hooks);
  }
}

// Token by token, with its own cache, it guesses what it guesses of the whole text.
TEST_F(Eagle, GuessesAsOverTheWholeText) {
  const auto spy = std::make_shared<Spy>(head(eagle_config(), eagle_tensors()));
  Engine engine(*model, at::TensorOptions().dtype(at::kFloat).device(device),
                {.block_size = 4,
                 .max_step_tokens = 5,
                 .max_sequences = 1,
                 .cache_bytes = 1 << 20,
                 .draft = {.tokens = 1, .by = DraftSpec::By::Eagle}},
                {.guess_head = spy});
  std::vector<int64_t> text = {3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26};
  int64_t known = std::ssize(text) + 1;
  for (const int32_t id :
       generate(engine, {{text.begin(), text.end()}}, {.temperature = 0, .max_new_tokens = 20, .ignore_eos = true})[0]
           .ids())
    text.push_back(id);
  engine.sleep();
  const auto length = static_cast<int32_t>(text.size());
  Step whole = packed_step({length}, device), shorter = packed_step({length - 1}, device);
  Keeping keeping;
  model->forward(inputs(text), whole, keeping);
  const at::Tensor state_TD = spy->begin(at::cat(keeping.behind, 1)).narrow(0, 0, length - 1),
                   ahead_TD = spy->states(*model, inputs({text.begin() + 1, text.end()}), state_TD, shorter),
                   wanted_T = spy->head->logits(*model, ahead_TD).argmax(1).cpu();
  size_t next = 0;
  for (; known + 1 < length; ++next) {
    ASSERT_LT(next, spy->guesses.size());
    EXPECT_EQ(spy->guesses[next], wanted_T[known - 2].item<int64_t>()) << "at " << known;
    known += spy->guesses[next] == text[static_cast<size_t>(known)] ? 2 : 1;
  }
}

TEST_F(Eagle, FilesOfOtherTrainersAndOfOtherModels) {
  Tensors other;
  for (const auto& [name, tensor] : eagle_tensors()) {
    const std::string layer = "midlayer.";
    other[name.starts_with(layer) ? "model.layers.0." + name.substr(layer.size()) : name] = tensor;
  }
  other["embed_tokens.weight"] = at::randn({160, kHidden});
  const ModelHooks hooks{.guess_head = head(eagle_config(), other)};
  expect_no_change({.tokens = 2, .by = DraftSpec::By::Eagle}, hooks);

  const auto refusal = [&](const Json& config, const Tensors& tensors) {
    return test::refusal(Fault::Model, [&] { head(config, tensors); });
  };
  Json deep = eagle_config();
  deep["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = {2, 16, 29};
  test::expect_says(refusal(deep, eagle_tensors()), "the model has 3 layers");
  Tensors less = eagle_tensors();
  less.erase("fc.weight");
  test::expect_says(refusal(eagle_config(), less), "holds no Eagle-3 head");
  less = eagle_tensors();
  less["norm.weight"] = at::randn({7});
  test::expect_says(refusal(eagle_config(), less), "norm.weight has the shape [7], wanted is [48]");
  less["norm.weight"] = at::randn({kHidden});
  less["d2t"] += 100;
  test::expect_says(refusal(eagle_config(), less), "words that the model has not");
}

using WithoutLayers = Guessing;

TEST_P(WithoutLayers, ChangesNoAnswer) {
  for (const std::vector<int64_t>& skipped : {std::vector<int64_t>{1}, {0, 2}})
    expect_no_change({.tokens = 3, .by = DraftSpec::By::Self, .skipped = skipped});
}

// Guesses of all layers but one, where that one adds nothing, are always right.
TEST_P(WithoutLayers, GuessesByTheOthers) {
  model->visit([&](const std::string& name, Param& p) {
    if (!name.starts_with(model->layer_name(1) + ".")) return;
    if (name.find("down_proj") != std::string::npos || name.ends_with("o_proj.weight") ||
        name.ends_with("out_proj.weight"))
      p.data.zero_();
  });
  EngineStats stats;
  answers({.tokens = 3, .by = DraftSpec::By::Self, .skipped = {1}}, 0, {}, &stats);
  EXPECT_GT(stats.drafted_tokens, 20);
  EXPECT_EQ(stats.accepted_tokens, stats.drafted_tokens);
}

TEST_P(WithoutLayers, OneAtLeastMustBeLeft) {
  for (const std::vector<int64_t>& skipped : {std::vector<int64_t>{7}, {0, 1, 2, 3}})
    test::expect_says(
        test::refusal(Fault::Usage, [&] { answers({.tokens = 3, .by = DraftSpec::By::Self, .skipped = skipped}, 0); }),
        "one at least must be left");
}

INSTANTIATE_TEST_SUITE_P(All, WithoutLayers, ::testing::Values("glm4_moe", "qwen3_next", "deepseek_v3"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace apus
