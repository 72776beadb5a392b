// SPDX-License-Identifier: Apache-2.0
// LoRA beyond plain linear layers: experts, routers, embeddings, the head. The factors' gradients against those of the
// merged weights by the chain rule, the files against PEFT's names, merged against unmerged, several adapters at once.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>

#include "base/random.h"
#include "checkpoint/adapter.h"
#include "checkpoint/merge.h"
#include "ops/ops.h"
#include "tensor/noise.h"
#include "tests/train/training.h"

namespace apus {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using golden::Folder;
using golden::max_abs;
using golden::Packed;

std::unique_ptr<Model> plain(const fs::path& dir) {
  return load_model(dir, {.dtype = at::kFloat, .device = golden::device()});
}

// Every factor with values of its own: as made, half of them are zero.
Adapter filled_adapter(Model& model, std::vector<std::string> targets, const std::string& name, uint64_t seed) {
  Adapter adapter =
      make_adapter(model, {.r = 3, .alpha = 6, .target_modules = std::move(targets)}, seed, at::kFloat, name);
  at::NoGradGuard no_grad;
  uint64_t i = 0;
  model.visit([&](const std::string& n, Param& p) {
    if (n.find("." + name + ".lora_") != std::string::npos)
      p.data = normal_noise(p.full, 0, 0.1, mix(seed, 5, i++)).to(p.data.options());
  });
  EXPECT_GT(i, 0u);
  return adapter;
}

at::Tensor hidden_of(Model& model, const Packed& p, Step& step) {
  step = packed_step(p.lengths, golden::device());
  return model.forward(golden::ids_tensor(p.flat, golden::device()), step);
}

at::Tensor logits_of(Model& model, const Packed& p) {
  at::NoGradGuard no_grad;
  Step step;
  const at::Tensor hidden = hidden_of(model, p, step);
  return model.head(hidden, step);
}

at::Tensor loss_of(Model& model, const Packed& p) {
  Step step;
  const at::Tensor hidden = hidden_of(model, p, step);
  return ops::head_loss(model.head_factors(hidden, step), golden::ids_tensor(p.labels, golden::device()),
                        at::ones({hidden.size(0)}, hidden.options()), {})
      .loss_sum;
}

const std::vector<std::string> kEverything = {"q_proj", "gate_proj",    "up_proj", "down_proj",
                                              "gate",   "embed_tokens", "lm_head"};

// d loss / d B = s dW A' and d loss / d A = s B' dW, with dW that of the merged weight.
void check_gradients(Model& model, Model& merged) {
  std::map<std::string, at::Tensor> weights;  // gradients, by the module's name
  merged.visit([&](const std::string& name, Param& p) {
    const at::Tensor grad = p.data.grad();
    if (p.pieces.empty() && name.ends_with(".weight")) weights[name.substr(0, name.rfind('.'))] = grad;
    const std::string parent = name.substr(0, name.rfind('.') + 1);
    const auto count = static_cast<int64_t>(p.pieces.size());
    for (int64_t i = 0; i < count; ++i) {
      const std::string piece = p.pieces[static_cast<size_t>(i)];
      weights[parent + piece.substr(0, piece.rfind('.'))] = grad.reshape({count, -1, grad.size(-1)})[i];
    }
  });
  int checked = 0;
  model.visit_modules([&](const std::string& name, Module& m) {
    auto* layer = dynamic_cast<Adaptable*>(&m);
    if (!layer || layer->adapters().empty()) return;
    auto& lora = dynamic_cast<Lora&>(*layer->adapters().begin()->second);
    ASSERT_TRUE(weights.count(name)) << name;
    at::Tensor dw = weights[name];
    if (layer->sides().looks_up) dw = dw.t();
    const at::Tensor da = lora.b().data.detach().t().mm(dw) * lora.spec().scale(),
                     db = dw.mm(lora.a().data.detach().t()) * lora.spec().scale();
    const double size = dw.norm().item<double>();
    if (size == 0 && !lora.a().data.grad().defined()) return;  // an expert that no token chose
    ASSERT_TRUE(lora.a().data.grad().defined() && lora.b().data.grad().defined()) << name;
    EXPECT_LT((lora.a().data.grad() - da).norm().item<double>(), 1e-3 * std::max(da.norm().item<double>(), 1e-3))
        << name;
    EXPECT_LT((lora.b().data.grad() - db).norm().item<double>(), 1e-3 * std::max(db.norm().item<double>(), 1e-3))
        << name;
    ++checked;
  });
  EXPECT_GE(checked, 10);
}

// The head's factors as further columns of hidden states and head: what the loss does without the copy.
TEST(LoraOfTheHead, EqualsTheCopiedHeadAndCopiesNothing) {
  for (const char* name : {"qwen2_untied_sharded", "lora_qwen2"}) {
    const Case c(name);
    const Packed p = golden::unpad(c, "right");
    const auto model = plain(c.dir / "checkpoint");
    filled_adapter(*model, {"lm_head"}, "default", 5), filled_adapter(*model, {"lm_head"}, "second", 6);
    model->visit(
        [](const std::string& n, Param& q) { q.data.set_requires_grad(n.find("lora_") != std::string::npos); });
    Step step;
    const at::Tensor hidden = hidden_of(*model, p, step).detach().requires_grad_();
    const ops::HeadFactors f = model->head_factors(hidden, step);
    EXPECT_TRUE(f.weight_VD.is_alias_of(model->head_weight())) << name;
    EXPECT_TRUE(f.hidden_TD.is_same(hidden)) << name;
    EXPECT_EQ(f.low_VR.size(1), 6) << name;
    const at::Tensor label = golden::ids_tensor(p.labels, golden::device());
    const ops::HeadFactors copied{at::cat({f.hidden_TD, f.low_TR}, 1), at::cat({f.weight_VD, f.low_VR}, 1)};
    std::vector<std::vector<at::Tensor>> all;
    for (const ops::HeadFactors* way : {&f, &copied}) {
      const at::Tensor loss = ops::head_loss(*way, label, {}, {}).loss_sum;
      loss.backward({}, /*retain_graph=*/true);
      all.push_back({loss.detach(), hidden.grad().clone()});
      hidden.mutable_grad().reset();
      model->visit([&](const std::string& n, Param& q) {
        if (n.find("lora_") == std::string::npos) return;
        all.back().push_back(q.data.grad().clone());
        q.data.mutable_grad().reset();
      });
    }
    ASSERT_EQ(all[0].size(), 6u);
    for (size_t i = 0; i < all[0].size(); ++i)
      EXPECT_LT(max_abs(all[0][i], all[1][i]), 1e-4 * (1 + all[1][i].abs().max().item<double>())) << name << " " << i;
  }
}

class LoraTargets : public ::testing::TestWithParam<const char*> {};

TEST_P(LoraTargets, GradientsAndMergedWeights) {
  const Case c(GetParam());
  const Packed p = golden::unpad(c, "right");
  const auto model = plain(c.dir / "checkpoint"), merged = plain(c.dir / "checkpoint");
  const Adapter adapter = filled_adapter(*model, kEverything, "default", 7),
                same = filled_adapter(*merged, kEverything, "default", 7);
  EXPECT_GT(max_abs(logits_of(*model, p), logits_of(*plain(c.dir / "checkpoint"), p)), 1e-2)
      << "the factors do something";
  merge_attached(*merged, same);
  EXPECT_LT(max_abs(logits_of(*model, p), logits_of(*merged, p)), 3e-4);
  model->visit([](const std::string& n, Param& q) { q.data.set_requires_grad(n.find("lora_") != std::string::npos); });
  merged->visit([](const std::string&, Param& q) { q.data = q.data.detach().clone().set_requires_grad(true); });
  const at::Tensor loss = loss_of(*model, p), of_merged = loss_of(*merged, p);
  EXPECT_NEAR(loss.item<double>(), of_merged.item<double>(), 1e-3);
  loss.backward(), of_merged.backward();
  check_gradients(*model, *merged);
}

TEST_P(LoraTargets, FilesHavePeftsNamesAndMergeAsAttached) {
  const Case c(GetParam());
  const Packed p = golden::unpad(c, "right");
  Folder folder;
  const auto model = plain(c.dir / "checkpoint");
  const Adapter adapter = filled_adapter(*model, kEverything, "default", 8);
  for (const char* name : {"adapter", "base"}) fs::create_directories(folder.path / name);
  save_adapter(*model, adapter, folder.path / "adapter", {});
  const auto file = SafetensorsFile::open(folder.path / "adapter/adapter_model.safetensors");
  const auto shape = [&](const std::string& name) {
    const auto found = file->entries().find("base_model.model." + name);
    return found == file->entries().end() ? std::vector<int64_t>{} : found->second.shape;
  };
  const ModelShape& of = model->shape();
  EXPECT_EQ(shape("model.embed_tokens.lora_embedding_A"), (std::vector<int64_t>{3, of.vocab}));
  EXPECT_EQ(shape("model.embed_tokens.lora_embedding_B"), (std::vector<int64_t>{of.hidden, 3}));
  EXPECT_EQ(shape("lm_head.lora_A.weight"), (std::vector<int64_t>{3, of.hidden}));
  EXPECT_EQ(shape("lm_head.lora_B.weight"), (std::vector<int64_t>{of.vocab, 3}));
  if (of.experts > 0) {
    EXPECT_EQ(shape(str("model.layers.1.mlp.experts.", of.experts - 1, ".gate_proj.lora_A.weight")),
              (std::vector<int64_t>{3, of.hidden}));
    EXPECT_EQ(shape("model.layers.1.mlp.experts.0.down_proj.lora_B.weight"), (std::vector<int64_t>{of.hidden, 3}));
    EXPECT_EQ(shape("model.layers.1.mlp.gate.lora_B.weight"), (std::vector<int64_t>{of.experts, 3}));
  }
  const auto again = plain(c.dir / "checkpoint");
  load_adapter(*again, folder.path / "adapter");
  EXPECT_EQ(max_abs(logits_of(*again, p), logits_of(*model, p)), 0);

  {  // a base in f32, so that merging does not round
    const auto wide = golden::owned_model(c.dir / "checkpoint");
    save_weights(*wide, folder.path / "base", int64_t{1} << 30, at::kFloat);
    fs::copy_file(c.dir / "checkpoint/config.json", folder.path / "base/config.json");
  }
  merge_adapters(
      {.base = folder.path / "base", .parts = {{folder.path / "adapter"}}, .output = folder.path / "merged"});
  EXPECT_LT(max_abs(logits_of(*plain(folder.path / "merged"), p), logits_of(*model, p)), 3e-4);
}

TEST_P(LoraTargets, SeveralAdaptersEachForItsOwnTokens) {
  const Case c(GetParam());
  const Packed p = golden::unpad(c, "right");
  at::NoGradGuard no_grad;
  const auto one = plain(c.dir / "checkpoint"), two = plain(c.dir / "checkpoint"), both = plain(c.dir / "checkpoint");
  filled_adapter(*one, kEverything, "one", 9), filled_adapter(*two, kEverything, "two", 10);
  filled_adapter(*both, kEverything, "one", 9), filled_adapter(*both, kEverything, "two", 10);
  const auto tokens = static_cast<int64_t>(p.flat.size());
  // Sequence 0 by adapter one, the next by two, further ones by none.
  const int64_t first = p.lengths[0];
  const int64_t second = p.lengths.size() > 1 ? p.lengths[1] : 0;
  Step step = packed_step(p.lengths, golden::device());
  const auto rows = [&](int64_t begin, int64_t end) { return at::arange(begin, end, at::kLong).to(golden::device()); };
  step.routed = true;
  step.adapters = {{"one", rows(0, first)}, {"two", rows(first, first + second)}};
  const at::Tensor hidden = both->forward(golden::ids_tensor(p.flat, golden::device()), step);
  const at::Tensor logits = both->head(hidden, step);
  ASSERT_EQ(logits.size(0), tokens);
  EXPECT_LT(max_abs(logits.narrow(0, 0, first), logits_of(*one, p).narrow(0, 0, first)), 3e-4);
  EXPECT_LT(max_abs(logits.narrow(0, first, second), logits_of(*two, p).narrow(0, first, second)), 3e-4);
  const int64_t rest = tokens - first - second;
  if (rest == 0) return;
  EXPECT_LT(max_abs(logits.narrow(0, first + second, rest),
                    logits_of(*plain(c.dir / "checkpoint"), p).narrow(0, first + second, rest)),
            3e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, LoraTargets,
                         ::testing::Values("qwen3_moe_norm", "qwen2_untied_sharded", "lora_qwen2"));

TEST(LoraTargetWords, AllLinearMeansExpertsButNoRouter) {
  const auto model = plain(Case("qwen3_moe_norm").dir / "checkpoint");
  const auto modules = linear_modules(*model);
  EXPECT_EQ(target_suffixes({"all-linear"}, modules),
            (std::vector<std::string>{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}));
  make_adapter(*model, {.target_modules = target_suffixes({"all-linear"}, modules)}, 1);
  int experts = 0, routers = 0;
  model->visit([&](const std::string& n, Param&) {
    experts += n.find(".experts.") != std::string::npos && n.ends_with("lora_A.weight");
    routers += n.find("mlp.gate.default") != std::string::npos;
  });
  EXPECT_EQ(experts % 3, 0);
  EXPECT_GT(experts, 0);
  EXPECT_EQ(routers, 0);
}

TEST(LoraTargetWords, DoraOnAnEmbeddingIsRefused) {
  const auto model = plain(Case("lora_qwen2").dir / "checkpoint");
  EXPECT_THROW(make_adapter(*model, {.dora = true, .target_modules = {"embed_tokens"}}, 1), Error);
}

TEST(LoraTargetWords, PissaOfLinearLayersBesideAnEmbedding) {
  const Case c("lora_qwen2");
  const Packed p = golden::unpad(c, "right");
  const auto model = plain(c.dir / "checkpoint");
  make_adapter(*model, {.r = 4, .alpha = 8, .target_modules = {"q_proj", "embed_tokens"}, .init = "pissa"}, 3);
  EXPECT_LT(max_abs(logits_of(*model, p), logits_of(*plain(c.dir / "checkpoint"), p)), 3e-4);
}

}  // namespace
}  // namespace apus
