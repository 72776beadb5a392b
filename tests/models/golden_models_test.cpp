// SPDX-License-Identifier: Apache-2.0
// Every text family against transformers: logits, hidden states, loss, router loss, gradients, greedy continuations.
// Tolerances (f32) are those of the golden data's own README.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>

#include <map>

#include "models/spec/family.h"
#include "nn/moe.h"
#include "nn/training_step.h"
#include "ops/ops.h"
#include "tests/models/golden_batch.h"

namespace apus {
namespace {

using golden::Case;
using golden::max_abs;
using golden::Packed;

class GoldenModel : public ::testing::TestWithParam<std::string> {
 protected:
  GoldenModel() : c(GetParam()), device(golden::device()) {
    model = load_model(c.dir / "checkpoint",
                       {.dtype = at::kFloat, .device = device, .own = [](const std::string&) { return true; }});
  }
  at::Tensor expected(const std::string& name, const Packed& p) const {
    const at::Tensor t = c.tensor(name);
    return at::index_select(t.reshape({-1, t.size(-1)}), 0, golden::ids_tensor(p.place, at::kCPU));
  }
  Case c;
  c10::Device device;
  std::unique_ptr<Model> model;
};

TEST_P(GoldenModel, LogitsAndHiddenStates) {
  c10::AutoGradMode no_grad(false);
  for (const char* which : {"left", "right", "packed"}) {
    const Packed p = golden::unpad(c, which);
    Step step = packed_step(p.lengths, device);
    const at::Tensor hidden = model->forward(golden::ids_tensor(p.flat, device), step);
    EXPECT_LT(max_abs(hidden, expected(str(which, "/last_hidden_state"), p)), 1e-4) << which;
    EXPECT_LT(max_abs(model->head(hidden, step), expected(str(which, "/logits"), p)), 3e-4) << which;
  }
}

TEST_P(GoldenModel, LayerInputs) {
  if (!c.has("right/hidden_states.0")) GTEST_SKIP() << "the original tells what layers give, not what they read";
  c10::AutoGradMode no_grad(false);
  const Packed p = golden::unpad(c, "right");
  Step step = packed_step(p.lengths, device);
  model->begin(step);
  at::Tensor x = model->embed(golden::ids_tensor(p.flat, device), step);
  for (int64_t i = 0; i < model->shape().layers; ++i) {
    EXPECT_LT(max_abs(x, expected(str("right/hidden_states.", i), p)), 1e-4) << "input of layer " << i;
    x = model->layer(i, x, step);
  }
}

TEST_P(GoldenModel, LossAndGradients) {
  for (const std::string which : {"right", "packed"}) {
    const auto& numbers = c.json.at("cases").at(which);
    const auto& grad = c.json.at("grad").at(which);
    const Packed p = golden::unpad(c, which);
    model->visit([&](const std::string&, Param& param) {
      if (param.tied.empty()) param.data.mutable_grad() = at::Tensor(), param.data.set_requires_grad(true);
    });
    Step step = packed_step(p.lengths, device);
    // gpt-oss's own balance loss takes softmaxes of softmaxes, and its gradients are told without it.
    const bool balanced = numbers.contains("router_aux_loss_coef") && grad.value("includes_router_aux_loss", true);
    const auto router = balanced ? std::make_shared<RouterLoss>() : nullptr;
    if (router) router->scale = numbers.at("router_aux_loss_coef").get<double>();
    set_training(step, {.router = router});
    const at::Tensor hidden = model->forward(golden::ids_tensor(p.flat, device), step);
    const auto loss = ops::head_loss(model->head_factors(hidden, step), golden::ids_tensor(p.labels, device),
                                     at::ones({hidden.size(0)}, at::TensorOptions().device(device)), {});
    const double count = numbers.at("n_label_tokens").get<double>();
    EXPECT_NEAR(loss.loss_sum.item<double>() / count, numbers.at("loss").get<double>(), 2e-5) << which;
    EXPECT_NEAR(loss.loss_sum.item<double>() / 100, numbers.at("loss_sum_over_100_items").get<double>(), 2e-5) << which;
    if (router) {
      EXPECT_NEAR(router->value().item<double>(), numbers.at("aux_loss").get<double>(), 2e-5) << which;
    }
    loss.loss_sum.backward(at::ones_like(loss.loss_sum).div_(count));

    std::map<std::string, at::Tensor> by_disk_name;
    model->visit([&](const std::string& name, Param& param) {
      if (!param.tied.empty()) return;
      const at::Tensor g = param.data.grad();
      if (param.pieces.empty())
        return void(by_disk_name[model->disk_form().disk_name(name)] = param.turned ? g.transpose(1, 2) : g);
      const std::string parent = name.substr(0, name.rfind('.') + 1);
      const at::Tensor parts = g.view({static_cast<int64_t>(param.pieces.size()), -1, g.size(-1)});
      for (size_t i = 0; i < param.pieces.size(); ++i)
        by_disk_name[model->disk_form().disk_name(parent + param.pieces[i])] = parts[static_cast<int64_t>(i)];
    });
    double largest = 0;
    for (const auto& [name, norm] : grad.at("norms").items())
      if (!norm.is_null()) largest = std::max(largest, norm.get<double>());
    for (const auto& [name, norm] : grad.at("norms").items()) {
      ASSERT_TRUE(by_disk_name.count(name)) << name;
      if (norm.is_null()) continue;
      const double floor = std::max(norm.get<double>(), 1e-4 * largest);
      EXPECT_LT(std::abs(by_disk_name[name].norm().item<double>() - norm.get<double>()) / floor, 1e-3)
          << which << " " << name;
      const std::string full = "grad/" + which + "/" + name;
      if (c.has(full)) {
        EXPECT_LT((by_disk_name[name].to(at::kCPU) - c.tensor(full)).norm().item<double>() / floor, 1e-3) << full;
      }
    }
  }
}

// Corrections that depend on each other in a row leave less of f32 (the golden data's README).
double step_tolerance(const std::string& name) { return name == "qwen3_next" ? 2e-3 : 3e-4; }

// Greedy continuation by recomputing the whole sequence for every token: no cache involved.
TEST_P(GoldenModel, GreedyWithoutCache) {
  c10::AutoGradMode no_grad(false);
  const Packed p = golden::unpad(c, "gen");
  const at::Tensor wanted = c.tensor("gen/new_ids");
  auto rows = p.ids;
  for (int64_t n = 0; n < wanted.size(1); ++n) {
    std::vector<int64_t> flat;
    std::vector<int32_t> lengths;
    for (const auto& row : rows)
      flat.insert(flat.end(), row.begin(), row.end()), lengths.push_back(static_cast<int32_t>(row.size()));
    Step step = packed_step(lengths, device);
    const at::Tensor hidden = model->forward(golden::ids_tensor(flat, device), step);
    int64_t last = -1;
    for (size_t r = 0; r < rows.size(); ++r) {
      last += lengths[r];
      const at::Tensor logits = model->head(hidden.narrow(0, last, 1), step);
      EXPECT_LT(max_abs(logits[0], c.tensor("gen/step_logits")[n][static_cast<int64_t>(r)]), step_tolerance(GetParam()))
          << "token " << n << " of row " << r;
      rows[r].push_back(logits.argmax(-1).item<int64_t>());
      ASSERT_EQ(rows[r].back(), wanted[static_cast<int64_t>(r)][n].item<int64_t>()) << "token " << n << " of row " << r;
    }
  }
}

// The same through the paged cache: prompts in chunks of three tokens, blocks of four handed out in reverse order.
TEST_P(GoldenModel, GreedyThroughPagedCache) {
  c10::AutoGradMode no_grad(false);
  const Packed p = golden::unpad(c, "gen");
  const at::Tensor wanted = c.tensor("gen/new_ids");
  constexpr int64_t kBlock = 4, kBlocksPerRow = 12;
  const auto rows = static_cast<int64_t>(p.ids.size());
  KvCache::Spec spec = cache_spec(model->shape(), rows * kBlocksPerRow, kBlock);
  spec.seats = rows;
  KvCache cache(spec, at::TensorOptions().dtype(at::kFloat).device(device));
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int64_t> ids = p.ids[static_cast<size_t>(r)];
    std::vector<int32_t> table;
    for (int64_t b = kBlocksPerRow - 1; b >= 0; --b) table.push_back(static_cast<int32_t>(b * rows + r));
    for (size_t done = 0; static_cast<int64_t>(ids.size() - p.ids[static_cast<size_t>(r)].size()) < wanted.size(1);) {
      const auto chunk = static_cast<int32_t>(std::min<size_t>(3, ids.size() - done));
      Step step = packed_step({chunk}, device);
      std::vector<int64_t> slot, piece;
      for (int32_t i = 0; i < chunk; ++i) {
        const auto at = static_cast<int64_t>(done) + i;
        slot.push_back(table[static_cast<size_t>(at / kBlock)] * kBlock + at % kBlock);
        piece.push_back(ids[static_cast<size_t>(at)]);
      }
      done += static_cast<size_t>(chunk);
      step.position = step.position + (static_cast<int64_t>(done) - chunk);
      step.cu_k = at::tensor(std::vector<int32_t>{0, static_cast<int32_t>(done)}, at::kInt).to(device);
      step.length_k = {static_cast<int32_t>(done)};
      step.begin_q = {static_cast<int32_t>(done) - chunk};
      step.max_k = static_cast<int64_t>(done);
      step.cache = &cache;
      step.slot = golden::ids_tensor(slot, device);
      step.block_table = at::tensor(table, at::kInt).view({1, -1}).to(device);
      step.seat = golden::ids_tensor({rows - 1 - r}, device);
      const at::Tensor hidden = model->forward(golden::ids_tensor(piece, device), step);
      if (done < ids.size()) continue;
      ids.push_back(model->head(hidden.narrow(0, chunk - 1, 1), step).argmax(-1).item<int64_t>());
      const auto n = static_cast<int64_t>(ids.size() - p.ids[static_cast<size_t>(r)].size()) - 1;
      ASSERT_EQ(ids.back(), wanted[r][n].item<int64_t>()) << "token " << n << " of row " << r;
    }
  }
}

// Tables that follow the length need the engine's way through a text: golden_engine_test compares those.
std::vector<std::string> with_fixed_tables() {
  std::vector<std::string> names;
  for (const std::string& name : golden::text_models())
    if (!follows_length(describe_model(read_model_config(golden::models() / name / "checkpoint")).ropes[0]))
      names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Text, GoldenModel, ::testing::ValuesIn(with_fixed_tables()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace apus
