// SPDX-License-Identifier: Apache-2.0
// Every family that sees against transformers: positions, what the tower makes of images and videos, logits, hidden
// states, loss, gradients of text part and tower. Tolerances (f32) are those of the golden data's own README.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/function.h>

#include <map>
#include <set>

#include "checkpoint/disk_layout.h"
#include "models/spec/family.h"
#include "nn/training_step.h"
#include "ops/ops.h"
#include "plan/model_facts.h"
#include "tests/models/seeing_batch.h"

namespace apus {
namespace {

using golden::max_abs;
using golden::Packed;

class GoldenSight : public ::testing::TestWithParam<std::string> {
 protected:
  GoldenSight() : c(GetParam()), device(golden::device()) {
    loaded = load_model(c.dir / "checkpoint",
                        {.dtype = at::kFloat, .device = device, .own = [](const std::string&) { return true; }});
    model = dynamic_cast<SeeingDecoder*>(loaded.get());
  }
  // Those of the file, each with the case that holds its pixels.
  std::vector<std::pair<std::string, std::string>> cases() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const char* which : {"left", "right", "packed", "video", "text", "video_frac", "audio_only", "audio_in_video"})
      if (c.has(str(which, "/input_ids"))) all.emplace_back(which, std::string(which) == "packed" ? "left" : which);
    return all;
  }
  Packed unpadded(const std::string& which) const { return golden::unpad(c, which); }
  Inputs inputs(const Packed& p, const std::string& pixels) const {
    return Inputs(golden::ids_tensor(p.flat, device), golden::media_of(c, p, pixels, model->seeing()));
  }
  at::Tensor expected(const std::string& name, const Packed& p) const {
    const at::Tensor t = c.tensor(name);
    return at::index_select(t.reshape({-1, t.size(-1)}), 0, golden::ids_tensor(p.place, at::kCPU));
  }
  golden::Case c;
  c10::Device device;
  std::unique_ptr<Model> loaded;
  SeeingDecoder* model = nullptr;
};

TEST_P(GoldenSight, Positions) {
  const int64_t count = model->seeing().time == TimeRule::Numbered ? 4 : 3;
  for (const auto& [which, pixels] : cases()) {
    const Packed p = unpadded(which);
    const at::Tensor all = c.tensor(which + "/position_ids").to(at::kFloat);
    const bool plain = all.dim() == 2;  // as of a text
    const at::Tensor axes =
        plain ? all.unsqueeze(0).expand({count, -1, -1}) : all.narrow(0, all.size(0) - count, count);
    const at::Tensor wanted = at::index_select(axes.reshape({count, -1}), 1, golden::ids_tensor(p.place, at::kCPU));
    const at::Tensor got = model->positions(inputs(p, pixels), packed_step(p.lengths, device)).to(at::kCPU, at::kFloat);
    if (got.dim() == 2)
      EXPECT_TRUE(at::equal(got, wanted)) << which << "\n" << got << wanted;
    else  // text alone
      for (int64_t axis = 0; axis < count; ++axis) EXPECT_TRUE(at::equal(got, wanted[axis])) << which;
  }
}

TEST_P(GoldenSight, WhatTheTowerSees) {
  c10::AutoGradMode no_grad(false);
  for (const auto& [which, type, name, late] :
       {std::tuple{"left", MediaType::Image, "vision/image_embeds", "vision/deepstack."},
        std::tuple{"video", MediaType::Video, "vision/video_embeds", "vision/video_deepstack."}}) {
    if (!c.has(name)) continue;
    std::vector<at::Tensor> rows;
    std::map<size_t, std::vector<at::Tensor>> deep;
    for (const auto& content : golden::contents_of(c, which, model->seeing())) {
      if (content->type != type) continue;
      const Sight sight = model->see(*content);
      rows.push_back(sight.row_MD);
      for (size_t i = 0; i < sight.late_MD.size(); ++i) deep[i].push_back(sight.late_MD[i]);
    }
    EXPECT_LT(max_abs(at::cat(rows, 0), c.tensor(name).reshape({-1, rows[0].size(1)})), 5e-5) << name;
    EXPECT_EQ(deep.size(), model->seeing().vision.deep_layers.size());
    for (const auto& [i, parts] : deep)
      EXPECT_LT(max_abs(at::cat(parts, 0), c.tensor(str(late, i))), 5e-5) << late << i;
  }
}

// Each sound for itself: the original's rows are those of a batch.
TEST_P(GoldenSight, WhatTheTowerHears) {
  c10::AutoGradMode no_grad(false);
  int64_t heard = 0;
  for (const auto& [which, pixels] : cases()) {
    if (!c.has("audio/" + which + "/audio_embeds")) continue;
    std::vector<at::Tensor> rows;
    for (const auto& content : golden::contents_of(c, which, model->seeing()))
      if (content->type == MediaType::Audio) rows.push_back(model->see(*content).row_MD);
    EXPECT_LT(max_abs(at::cat(rows, 0), c.tensor("audio/" + which + "/audio_embeds")), 5e-5) << which;
    ++heard;
  }
  const bool sees = model->seeing().vision.width > 0;
  const auto& ears = model->seeing().hearing;
  const bool once = ears && ears->comes_by_frame();
  EXPECT_EQ(heard, !ears ? 0 : once ? 1 : sees ? 5 : 2);
}

TEST_P(GoldenSight, LogitsAndHiddenStates) {
  c10::AutoGradMode no_grad(false);
  for (const auto& [which, pixels] : cases()) {
    const Packed p = unpadded(which);
    Step step = packed_step(p.lengths, device);
    step.position = at::Tensor();
    const at::Tensor hidden = model->forward(inputs(p, pixels), step);
    if (c.has(which + "/last_hidden_state")) {
      EXPECT_LT(max_abs(hidden, expected(which + "/last_hidden_state", p)), 1e-4) << which;
    }
    EXPECT_LT(max_abs(model->head(hidden, step), expected(which + "/logits", p)), 3e-4) << which;
  }
}

// Sequences of a step do not see each other, nor do images.
TEST_P(GoldenSight, PackedIsAsEachAlone) {
  c10::AutoGradMode no_grad(false);
  const Packed p = unpadded("left");
  const Inputs together = inputs(p, "left");
  Step step = packed_step(p.lengths, device);
  step.position = at::Tensor();
  const at::Tensor all = model->forward(together, step);
  int64_t begin = 0;
  for (size_t r = 0; r < p.ids.size(); begin += p.lengths[r++]) {
    Step own = packed_step({p.lengths[r]}, device);
    own.position = at::Tensor();
    const at::Tensor alone = model->forward(Inputs(golden::ids_tensor(p.ids[r], device), {together.media[r]}), own);
    const double largest = std::max(1.0, alone.abs().max().item<double>());
    EXPECT_LT(max_abs(alone, all.narrow(0, begin, p.lengths[r])) / largest, 2e-5) << "row " << r;
  }
}

TEST_P(GoldenSight, LossAndGradients) {
  for (const std::string which : {"right", "video"}) {
    if (!c.json.at("grad").contains(which)) continue;
    const auto& numbers = c.json.at("cases").at(which);
    const auto& grad = c.json.at("grad").at(which);
    const Packed p = unpadded(which);
    model->visit([&](const std::string&, Param& param) {
      if (param.tied.empty()) param.data.mutable_grad() = at::Tensor(), param.data.set_requires_grad(true);
    });
    Step step = packed_step(p.lengths, device);
    step.position = at::Tensor();
    set_training(step, {});
    const at::Tensor hidden = model->forward(inputs(p, which), step);
    const auto loss = ops::head_loss(model->head_factors(hidden, step), golden::ids_tensor(p.labels, device),
                                     at::ones({hidden.size(0)}, at::TensorOptions().device(device)), {});
    const double count = numbers.at("n_label_tokens").get<double>();
    EXPECT_NEAR(loss.loss_sum.item<double>() / count, numbers.at("loss").get<double>(), 2e-5) << which;
    loss.loss_sum.backward(at::ones_like(loss.loss_sum).div_(count));

    const DiskForm& form = model->disk_form();
    std::map<std::string, at::Tensor> by_disk_name;
    model->visit([&](const std::string& name, Param& param) {
      if (!param.tied.empty()) return;
      const at::Tensor g = param.data.grad();
      if (param.pieces.empty() || form.is_transposed(name))
        return void(by_disk_name[form.disk_name(name)] = form.is_transposed(name) ? g.transpose(-2, -1) : g);
      const std::string parent = name.substr(0, name.rfind('.') + 1);
      const at::Tensor parts = g.view({static_cast<int64_t>(param.pieces.size()), -1, g.size(-1)});
      for (size_t i = 0; i < param.pieces.size(); ++i)
        by_disk_name[form.disk_name(parent + param.pieces[i])] = parts[static_cast<int64_t>(i)];
    });
    double largest = 0;
    for (const auto& [name, norm] : grad.at("norms").items())
      if (!norm.is_null()) largest = std::max(largest, norm.get<double>());
    EXPECT_EQ(by_disk_name.size(), grad.at("norms").size());
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

// Towers that are trained meet every backward pass: texts without media too.
TEST_P(GoldenSight, TextAloneGivesTheTowerGradientsOfNought) {
  model->visit([](const std::string&, Param& p) {
    if (p.tied.empty()) p.data.set_requires_grad(true);
  });
  Step step = packed_step({3}, device);
  set_training(step, {});
  model->forward(golden::ids_tensor({1, 2, 3}, device), step).sum().backward();
  model->visit([&](const std::string& name, Param& p) {
    const auto& towers = model->seeing().tower;
    const bool idle = !p.trainable;
    if (idle || std::none_of(towers.begin(), towers.end(), [&](const auto& t) { return name.starts_with(t); })) return;
    ASSERT_TRUE(p.data.grad().defined()) << name;
    EXPECT_EQ(p.data.grad().abs().max().item<double>(), 0) << name;
  });
}

// Steps of a backward pass from here on.
size_t tape_length(const at::Tensor& from) {
  std::set<torch::autograd::Node*> known;
  std::vector<torch::autograd::Node*> open{from.grad_fn().get()};
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (!node || !known.insert(node).second) continue;
    for (const auto& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  return known.size();
}

// The same gradients, of which the layers keep less.
TEST_P(GoldenSight, LayersOfTowersRunAgain) {
  const std::string which = c.has("video/input_ids") ? "video" : "left";
  const Packed p = unpadded(which);
  const auto is_of_tower = [&](const std::string& name) {
    const auto& towers = model->seeing().tower;
    return std::any_of(towers.begin(), towers.end(), [&](const auto& t) { return name.starts_with(t); });
  };
  const auto length_of_tape = [&](bool again) {
    model->visit([](const std::string&, Param& param) {
      if (param.tied.empty()) param.data.mutable_grad() = at::Tensor();
    });
    Step step = packed_step(p.lengths, device);
    step.position = at::Tensor();
    set_training(step, {});
    model->run_towers_again(again);
    const at::Tensor hidden = model->forward(inputs(p, which), step);
    const size_t length = tape_length(hidden);
    hidden.square().sum().backward();
    return length;
  };
  model->visit([&](const std::string& name, Param& param) {
    if (param.tied.empty() && param.trainable) param.data.set_requires_grad(is_of_tower(name));
  });
  const size_t kept = length_of_tape(false);
  std::map<std::string, at::Tensor> wanted;
  model->visit([&](const std::string& name, Param& param) {
    if (param.data.requires_grad()) wanted[name] = param.data.grad();
  });
  const size_t again = length_of_tape(true);
  if (const int64_t layers = model->seeing().vision.layers; layers > 0)
    EXPECT_LT(again + static_cast<size_t>(10 * layers), kept);
  model->visit([&](const std::string& name, Param& param) {
    if (!param.data.requires_grad() || !wanted[name].defined()) return;
    EXPECT_LT(max_abs(param.data.grad(), wanted[name]), 1e-5 * (1 + wanted[name].abs().max().item<double>())) << name;
  });
  // Towers that are frozen keep nothing, and are not run twice.
  model->visit([&](const std::string& name, Param& param) {
    if (param.tied.empty() && param.trainable) param.data.set_requires_grad(!is_of_tower(name));
  });
  EXPECT_EQ(length_of_tape(true), length_of_tape(false));
}

// The plan's list is the model's own, from each of the three ways in which config.json is written.
TEST_P(GoldenSight, EverySpellingOfTheConfigIsOneModel) {
  std::vector<std::vector<std::pair<std::string, std::vector<int64_t>>>> lists;
  for (const char* file :
       {"config.json", "config.as_saved_by_transformers.json", "config.as_saved_by_transformers_5.json"}) {
    if (!std::filesystem::exists(c.dir / "checkpoint" / file)) continue;  // models of their own code
    const Json config = Json::parse(read_file(c.dir / "checkpoint" / file));
    std::vector<std::pair<std::string, std::vector<int64_t>>> real, planned;
    make_model(config)->visit([&](const std::string& name, Param& p) {
      if (p.tied.empty()) real.emplace_back(name, p.full);
    });
    for (const ParamFacts& p : model_facts(config).params) planned.emplace_back(p.name, p.shape);
    EXPECT_EQ(real, planned) << file;
    lists.push_back(real);
    const DecoderSpec spec = describe_model(config), own = describe_model(read_model_config(c.dir / "checkpoint"));
    EXPECT_EQ(spec.ropes, own.ropes) << file;
    EXPECT_EQ(spec.norm.eps, own.norm.eps) << file;
    EXPECT_EQ(spec.seeing->image_token, own.seeing->image_token) << file;
    EXPECT_EQ(spec.seeing->positions_per_second, own.seeing->positions_per_second) << file;
    EXPECT_EQ(spec.seeing->vision.full_layers, own.seeing->vision.full_layers) << file;
    EXPECT_EQ(spec.seeing->vision.window, own.seeing->vision.window) << file;
    EXPECT_EQ(weights_dtype(config), "bfloat16") << file;
  }
  for (const auto& list : lists) EXPECT_EQ(lists[0], list);
}

// Saved under the names of the file it came from, and files of every form are read.
TEST_P(GoldenSight, IsSavedAsItCame) {
  const test::Folder folder;
  for (const DiskForm& form : model->disk_forms()) {
    loaded->set_disk_form(form);
    save_weights(*loaded, folder.path, int64_t{1} << 30, at::kBFloat16);
    std::filesystem::copy_file(c.dir / "checkpoint/config.json", folder.path / "config.json",
                               std::filesystem::copy_options::overwrite_existing);
    const auto again = load_model(folder.path, {.dtype = at::kFloat, .device = device});
    std::map<std::string, at::Tensor> before, after;
    each_disk_tensor(*loaded, [&](const DiskTensor& t) { before[t.name] = t.data; });
    each_disk_tensor(*again, [&](const DiskTensor& t) { after[t.name] = t.data; });
    ASSERT_EQ(before.size(), after.size());
    for (const auto& [name, tensor] : before) EXPECT_TRUE(at::equal(tensor, after[name])) << name;
    save_weights(*again, folder.path / "again", int64_t{1} << 30, at::kBFloat16);
    EXPECT_EQ(read_file(folder.path / "model.safetensors"), read_file(folder.path / "again/model.safetensors"));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeing, GoldenSight, ::testing::ValuesIn(golden::seeing_models()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace apus
