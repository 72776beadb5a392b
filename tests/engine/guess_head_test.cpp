// SPDX-License-Identifier: Apache-2.0
// The heads that guess with which checkpoints come: their tensors' names, what they compute, and the engine that asks
// them: its guesses are those of a pass over the whole text, and its answers those without guesses.
#include "models/guess_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "models/decoder.h"
#include "models/spec/family.h"
#include "tests/models/golden_batch.h"
#include "tests/refusal.h"

namespace apus {
namespace {

struct GuessCase {
  const char *model, *prefix, *layer, *token_norm, *state_norm, *join, *end_norm;
  int64_t like;
  bool from_one = false;  // weights of norms are told from 1
  bool state_first = false;
  // It looks at a part of the text, where tiny models find many tokens alike: which ones follows from the step.
  bool chooses = false;
  const char* type = nullptr;  // the checkpoint is of this family's too
};
void PrintTo(const GuessCase& c, std::ostream* out) { *out << c.model; }

const GuessCase kCases[] = {
    {"deepseek_v3", "model.layers.3.", "", "enorm", "hnorm", "eh_proj", "shared_head.norm", 2},
    {"glm4_moe", "model.layers.3.", "", "enorm", "hnorm", "eh_proj", "shared_head.norm", 2},
    {"deepseek_v32", "model.layers.2.", "", "enorm", "hnorm", "eh_proj", "shared_head.norm", 1, false, false, true},
    {"glm4_moe_lite", "model.layers.2.", "", "enorm", "hnorm", "eh_proj", "shared_head.norm", 1},
    {"glm_moe_dsa", "model.layers.2.", "", "enorm", "hnorm", "eh_proj", "shared_head.norm", 1, false, false, true},
    {"bailing_moe", "model.layers.3.", "", "enorm", "hnorm", "eh_proj", "final_layernorm", 2},
    {"ling2_5", "model.layers.4.", "", "enorm", "hnorm", "eh_proj", "final_layernorm", 3},
    {"qwen3_next", "mtp.", "layers.0.", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm", 3, true},
    {"qwen3_5_text", "mtp.", "layers.0.", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm", 3, true},
    {"qwen2", "model.mtp_layers.0.", "", "token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm", 2,
     false, true, false, "mimo"},
};

// A decoder whose head's guesses are written down.
struct Watched final : Decoder {
  struct Spy final : GuessHead {
    explicit Spy(const Watched& of) : of(of) {}
    const GuessHead& own() const { return *of.Decoder::guess_head(); }
    const ModelShape& shape() const override { return own().shape(); }
    at::Tensor states(const Model& m, const Inputs& next, const at::Tensor& state_TD, Step& s) const override {
      return own().states(m, next, state_TD, s);
    }
    at::Tensor logits(const Model& m, const at::Tensor& state_RD) const override {
      const at::Tensor logits_RV = own().logits(m, state_RD);
      guesses.push_back(logits_RV[0].argmax().item<int64_t>());
      return logits_RV;
    }
    const Watched& of;
    mutable std::vector<int64_t> guesses;
  };
  explicit Watched(DecoderSpec spec) : Decoder(std::move(spec)) {}
  const GuessHead* guess_head() const override { return &spy; }
  Spy spy{*this};
};

class OwnHead : public ::testing::TestWithParam<GuessCase> {
 protected:
  OwnHead() : dir(golden::models() / GetParam().model / "checkpoint") {
    Json config = read_model_config(dir);
    config["num_nextn_predict_layers"] = 1;
    if (GetParam().type) config["model_type"] = GetParam().type, config["architectures"] = {"MiMoForCausalLM"};
    eps = config["rms_norm_eps"];
    model = std::make_unique<Watched>(describe_model(config));
    at::manual_seed(3);
    load_weights(*model, TensorFolder(dir),
                 {.dtype = at::kFloat, .device = golden::device(), .fresh = [](const auto&, const auto& shape) {
                    return at::randn(shape, at::kFloat) * 0.1;
                  }});
    model->visit([&](const std::string& name, Param& p) { params[name] = &p; });
  }
  const at::Tensor& param(const std::string& name) const {
    return params.at(GetParam().prefix + name + ".weight")->data;
  }
  at::Tensor normed(const std::string& name, const at::Tensor& x_TD) const {
    const at::Tensor scale_D = param(name) + (GetParam().from_one ? 1 : 0);
    return x_TD * (x_TD * x_TD).mean(1, true).add(eps).rsqrt() * scale_D;
  }
  Inputs inputs(const std::vector<int64_t>& ids) const { return Inputs(golden::ids_tensor(ids, golden::device())); }
  // What the head guesses behind each token but the first, in one pass over the whole text.
  std::vector<int64_t> guesses(const std::vector<int64_t>& text) const {
    Step step = packed_step({static_cast<int32_t>(text.size())}, golden::device());
    const at::Tensor state_TD = model->forward(inputs(text), step);
    Step shorter = packed_step({static_cast<int32_t>(text.size() - 1)}, golden::device());
    const GuessHead& head = model->spy.own();
    const at::Tensor ahead_TD = head.states(*model, inputs({text.begin() + 1, text.end()}),
                                            state_TD.narrow(0, 0, state_TD.size(0) - 1), shorter),
                     best_T = head.logits(*model, ahead_TD).argmax(1).cpu();
    return {best_T.data_ptr<int64_t>(), best_T.data_ptr<int64_t>() + best_T.size(0)};
  }
  std::filesystem::path dir;
  double eps = 0;
  std::unique_ptr<Watched> model;
  std::map<std::string, Param*> params;
};

TEST_P(OwnHead, HasTheNamesOfTheCheckpoint) {
  const GuessCase& c = GetParam();
  for (const char* name : {c.token_norm, c.state_norm, c.join, c.end_norm})
    EXPECT_TRUE(params.count(str(c.prefix, name, ".weight"))) << name;
  for (const char* name : {"input_layernorm", "post_attention_layernorm", "self_attn.o_proj"})
    EXPECT_TRUE(params.count(str(c.prefix, c.layer, name, ".weight"))) << name;
  const std::string like = str("model.layers.", c.like, ".");
  for (const auto& [name, p] : params) {
    if (!name.starts_with(like)) continue;
    const auto own = params.find(str(c.prefix, c.layer, name.substr(like.size())));
    ASSERT_NE(own, params.end()) << name;
    EXPECT_EQ(own->second->full, p->full) << name;
  }
}

TEST_P(OwnHead, JoinsATokenWithTheStateBefore) {
  const GuessCase& c = GetParam();
  const std::string like = str("model.layers.", c.like, ".");
  for (const auto& [name, p] : params)
    if (name.starts_with(like)) params.at(str(c.prefix, c.layer, name.substr(like.size())))->data.copy_(p->data);
  const Inputs next = inputs({5, 9, 7, 30, 4, 11, 2});
  const at::Tensor state_TD = at::randn({7, model->shape().hidden}).to(golden::device());
  Step step = packed_step({4, 3}, golden::device());
  const at::Tensor got_TD = model->spy.states(*model, next, state_TD, step);
  const at::Tensor token_TD = normed(c.token_norm, model->embed(next, step)),
                   before_TD = normed(c.state_norm, state_TD),
                   both_TD = c.state_first ? at::cat({before_TD, token_TD}, 1) : at::cat({token_TD, before_TD}, 1);
  const at::Tensor wanted_TD = normed(c.end_norm, model->layer(c.like, both_TD.mm(param(c.join).t()), step));
  EXPECT_LT((got_TD - wanted_TD).abs().max().item<double>(), 1e-4);
}

std::vector<EngineRequest> requests(double temperature) {
  std::vector<EngineRequest> out;
  for (uint64_t i = 0; i < 7; ++i) {
    EngineRequest r{.sampling = {.temperature = temperature, .max_new_tokens = 14, .ignore_eos = true}};
    r.sampling.seed = 10 + i;
    for (uint64_t t = 0; t < 1 + 5 * i; ++t) r.prompt.push_back(static_cast<int32_t>(3 + (t * t + t * (i % 3)) % 90));
    out.push_back(std::move(r));
  }
  return out;
}

TEST_P(OwnHead, ChangesNoAnswer) {
  if (GetParam().chooses) GTEST_SKIP() << "what it looks at follows from the step";
  const auto options = at::TensorOptions().dtype(at::kFloat).device(golden::device());
  Engine plain(*model, options, {.block_size = 4, .cache_bytes = 1 << 20});
  for (const double temperature : {0.0, 1.0}) {
    const auto wanted = generate(plain, requests(temperature));
    for (const int64_t tokens : {1, 3})
      for (const int64_t most : {2, 8}) {
        Engine engine(*model, options,
                      {.block_size = 4,
                       .max_step_tokens = 16,
                       .max_sequences = 5,
                       .cache_bytes = 1 << 20,
                       .draft = {.tokens = tokens, .by = DraftSpec::By::Head, .max_sequences = most}});
        for (int again = 0; again < 2; ++again) {
          const auto got = generate(engine, requests(temperature));
          for (size_t i = 0; i < got.size(); ++i) {
            EXPECT_EQ(got[i].error, "");
            EXPECT_EQ(got[i].ids(), wanted[i].ids()) << i << ", " << tokens << " guesses";
          }
        }
        engine.sleep();
        EXPECT_GT(engine.stats().drafted_tokens, 0);
        EXPECT_EQ(engine.stats().failed_steps, 0);
      }
  }
}

// Token by token, with keys and values of its own in the cache, it guesses what it guesses of the whole text.
TEST_P(OwnHead, GuessesAsOverTheWholeText) {
  if (GetParam().chooses) GTEST_SKIP() << "what it looks at follows from the step";
  const auto options = at::TensorOptions().dtype(at::kFloat).device(golden::device());
  Engine engine(*model, options,
                {.block_size = 4,
                 .max_step_tokens = 5,
                 .max_sequences = 1,
                 .cache_bytes = 1 << 20,
                 .draft = {.tokens = 1, .by = DraftSpec::By::Head}});
  std::vector<int64_t> text = {3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26};
  const auto prompt = std::ssize(text);
  const auto got = generate(engine, {std::vector<int32_t>(text.begin(), text.end())},
                            {.temperature = 0, .max_new_tokens = 20, .ignore_eos = true});
  engine.sleep();
  for (const int32_t id : got[0].ids()) text.push_back(id);
  const std::vector<int64_t> wanted = guesses(text);
  int64_t known = prompt + 1, right = 0;
  const bool states = model->shape().state.numbers() > 0;
  size_t next = 0;
  while (known + 1 < std::ssize(text)) {
    ASSERT_LT(next, model->spy.guesses.size());
    const int64_t guess = model->spy.guesses[next++];
    EXPECT_EQ(guess, wanted[static_cast<size_t>(known - 2)]) << "at " << known;
    const bool hit = guess == text[static_cast<size_t>(known)];
    right += hit;
    known += hit || states ? 2 : 1;  // behind a wrong guess a model with states reads again, and nothing is guessed
  }
  EXPECT_EQ(engine.stats().accepted_tokens, right);
}

// Where no layer adds anything, what comes next follows from a token alone. A head that passes the token on is right
// then, at the first guess and at those behind it.
TEST_P(OwnHead, IsRightWhereItKnowsTheModel) {
  const GuessCase& c = GetParam();
  const int64_t hidden = model->shape().hidden;
  for (const auto& [name, p] : params)
    for (const char* out : {".o_proj.weight", ".dense.weight", "down_proj", "out_proj.weight"})
      if (name.find(out) != std::string::npos) p->data = at::zeros_like(p->data);  // it may lie in the file
  for (const char* name : {c.token_norm, c.end_norm})
    params.at(str(c.prefix, name, ".weight"))->data.fill_(c.from_one ? 0 : 1);
  params.at(str(c.prefix, c.end_norm, ".weight"))->data.copy_(params.at("model.norm.weight")->data);
  at::Tensor& join = params.at(str(c.prefix, c.join, ".weight"))->data;
  join.zero_();
  join.narrow(1, c.state_first ? hidden : 0, hidden).fill_diagonal_(1);
  for (const int64_t tokens : {1, 3}) {
    Engine engine(*model, at::TensorOptions().dtype(at::kFloat).device(golden::device()),
                  {.block_size = 4, .cache_bytes = 1 << 20, .draft = {.tokens = tokens, .by = DraftSpec::By::Head}});
    for (const FinishedAnswer& answer : generate(engine, requests(0))) EXPECT_EQ(answer.error, "");
    engine.sleep();
    EXPECT_GT(engine.stats().drafted_tokens, 20);
    EXPECT_EQ(engine.stats().accepted_tokens, engine.stats().drafted_tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OwnHead, ::testing::ValuesIn(kCases), [](const auto& p) { return p.param.model; });

TEST(GuessHeads, AreAskedForWhereThereAreNone) {
  const Json config = read_model_config(golden::models() / "qwen2/checkpoint");
  test::expect_says(test::refusal(Fault::Model, [&] { make_model(config, Head::Vocab, true); }),
                    "has no head that guesses tokens ahead");
  const auto dir = golden::models() / "qwen3_next/checkpoint";
  const auto model = make_model(read_model_config(dir), Head::Vocab, true);
  test::expect_says(test::refusal(Fault::Model, [&] { load_weights(*model, TensorFolder(dir), {}); }),
                    "the files hold no head that guesses tokens ahead");
}

}  // namespace
}  // namespace apus
