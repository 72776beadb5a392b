// SPDX-License-Identifier: Apache-2.0
// Golden batches as a source, and a trainer put together on them.
#pragma once

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include <deque>

#include "algos/sft.h"
#include "device/device.h"
#include "tests/folder.h"
#include "tests/models/golden_batch.h"
#include "train/chosen_layers.h"
#include "train/param_groups.h"
#include "train/trainer.h"

namespace apus::golden {

inline Batch batch_of(const Packed& p) {
  Batch b;
  b.id_T = at::tensor(p.flat, at::kLong);
  b.label_T = at::tensor(p.labels, at::kLong);
  b.weight_T = at::ones({b.id_T.numel()});
  b.step = packed_step(p.lengths, at::kCPU);
  for (const int64_t label : p.labels) b.trained += label >= 0;
  return b;
}

// The rows [first, first + count) of a padded batch.
inline Packed rows_of(const Packed& p, size_t first, size_t count) {
  Packed out;
  size_t at = 0;
  for (size_t r = 0; r < p.lengths.size(); at += static_cast<size_t>(p.lengths[r++])) {
    if (r < first || r >= first + count) continue;
    const auto length = static_cast<size_t>(p.lengths[r]);
    out.lengths.push_back(p.lengths[r]);
    out.flat.insert(out.flat.end(), p.flat.begin() + static_cast<long>(at),
                    p.flat.begin() + static_cast<long>(at + length));
    out.labels.insert(out.labels.end(), p.labels.begin() + static_cast<long>(at),
                      p.labels.begin() + static_cast<long>(at + length));
  }
  return out;
}

// Rows of a packed batch as samples; what is learnt is always the next token.
inline Samples samples_of(const Packed& p) {
  Samples out;
  size_t at = 0;
  for (const int32_t length : p.lengths) {
    Sample& sample = out.emplace_back();
    for (int32_t i = 0; i < length; ++i) {
      sample.ids.push_back(static_cast<int32_t>(p.flat[at + static_cast<size_t>(i)]));
      sample.trained.push_back(i > 0 && p.labels[at + static_cast<size_t>(i) - 1] >= 0);
    }
    at += static_cast<size_t>(length);
  }
  return out;
}

class FixedSource final : public SampleSource {
 public:
  explicit FixedSource(std::vector<Packed> batches) : batches_(std::move(batches)) {}
  void start(int64_t) override { at_ = 0; }
  std::optional<Samples> next() override {
    return at_ < batches_.size() ? std::optional(samples_of(batches_[at_++])) : std::nullopt;
  }
  int64_t size() const override { return static_cast<int64_t>(batches_.size()); }
  Json position() const override { return at_; }
  void restore(const Json& position) override { at_ = position.get<size_t>(); }

 private:
  std::vector<Packed> batches_;
  size_t at_ = 0;
};

inline std::vector<Packed> train_batches(const Case& c, const std::string& prefix = "") {
  std::vector<Packed> all;
  for (int i = 0; c.has(str(prefix, "batch", i, "/input_ids")); ++i) all.push_back(unpad(c, str(prefix, "batch", i)));
  return all;
}

inline std::vector<NamedParam> trainable(Model& model) {
  std::vector<NamedParam> params;
  model.visit([&](const std::string& name, Param& p) {
    if (!p.trainable || !p.tied.empty()) return;
    p.data.set_requires_grad(true);
    params.push_back({name, p.data});
  });
  return params;
}

inline std::unique_ptr<Model> owned_model(const std::filesystem::path& dir, at::ScalarType type = at::kFloat) {
  return load_model(dir, {.dtype = type, .device = device(), .own = [](const std::string&) { return true; }});
}

using test::Folder;

// A run as golden.json's "hyper" describes it; besides, there may be "schedule_kwargs" and "lorap_lr_ratio".
struct TestRun {
  TestRun(std::unique_ptr<Model> m, const Json& hyper, std::vector<Packed> batches, TrainerOptions options = {},
          OptimizerSpec spec = {}, SftOptions sft = {}, Algorithm* other = nullptr, int64_t lisa_layers = 0,
          std::function<int64_t()> room = {})
      : model(std::move(m)), source(std::move(batches)), algorithm(sft) {
    spec.beta1 = hyper["betas"][0], spec.beta2 = hyper["betas"][1], spec.eps = hyper["eps"];
    const double lr = hyper["lr"];
    const bool all = hyper["no_decay"].get<std::string>().rfind("none", 0) == 0;
    optimizer =
        make_optimizer(spec, make_groups(trainable(*model), {.lr = lr,
                                                             .weight_decay = hyper["weight_decay"],
                                                             .decay_all = all,
                                                             .lorap_lr_ratio = hyper.value("lorap_lr_ratio", 0.0)}));
    if (lisa_layers > 0)
      layers.emplace(
          *model, *optimizer,
          ChosenLayers::Spec{.layers = model->shape().layers, .count = lisa_layers, .interval = 2, .seed = 5});
    LoopOptions& loop = options.loop;
    loop.gradient_accumulation_steps = hyper["grad_accum"].get<int64_t>();
    loop.max_grad_norm = hyper["max_grad_norm"];
    if (loop.max_steps < 0) loop.max_steps = hyper["total_steps"];
    loop.logging_steps = 1;
    if (options.output_dir.empty()) loop.save_strategy = "no", options.output_dir = folder.path;
    const int64_t total = hyper["total_steps"], warmup = hyper["warmup_steps"];
    const std::string schedule = hyper["schedule"];
    const Json kwargs = hyper.value("schedule_kwargs", Json());
    log = std::make_unique<RunLog>(RunLog::Options{.dir = folder.path, .events_dir = {}, .quiet = true});
    comm = lone_comm();
    trainer = std::make_unique<Trainer>(
        TrainerParts{.algorithm = other ? *other : algorithm,
                     .actors = {.policy = *model},
                     .optimizer = *optimizer,
                     .schedule =
                         [=](int64_t) {
                           return make_schedule(
                               {.type = schedule, .base_lr = lr, .total_steps = total, .warmup_steps = warmup}, kwargs);
                         },
                     .base_lr = lr,
                     .train = source,
                     .data_ranks = *comm,
                     .layers = layers ? &*layers : nullptr,
                     .log = log.get(),
                     .device = device(),
                     .save_model = [this](const std::filesystem::path& dir) { save(dir); },
                     .saved =
                         [this](const std::filesystem::path& dir) {
                           if (saved) saved(dir);
                         },
                     .room = std::move(room),
                     .begins_step =
                         [this](int64_t step) {
                           if (begins_step) begins_step(step);
                         }},
        options);
  }
  Folder folder;
  std::unique_ptr<Model> model;
  FixedSource source;
  Sft algorithm;
  std::unique_ptr<Optimizer> optimizer;
  std::optional<ChosenLayers> layers;
  std::unique_ptr<RunLog> log;
  std::unique_ptr<Comm> comm;
  std::unique_ptr<Trainer> trainer;
  std::function<void(const std::filesystem::path&)> save = [this](const std::filesystem::path& dir) {
    save_weights(*model, dir, int64_t{1} << 30, at::kFloat);
  };
  std::function<void(const std::filesystem::path&)> saved;
  std::function<void(int64_t)> begins_step;
};

inline std::map<std::string, at::Tensor> weights(Model& model) {
  std::map<std::string, at::Tensor> all;
  model.visit([&](const std::string& name, Param& p) { all[name] = p.data.detach().clone(); });
  return all;
}

// The run saves whole models that a run can begin from: with the config.json of `checkpoint`.
inline void save_whole_models(TestRun& run, const std::filesystem::path& checkpoint, at::ScalarType type) {
  run.save = [&run, checkpoint, type](const std::filesystem::path& dir) {
    save_weights(*run.model, dir, int64_t{1} << 30, type);
    std::filesystem::copy_file(checkpoint / "config.json", dir / "config.json");
  };
}

// Two runs stand at the same place, to the bit.
inline void expect_same(TestRun& a, TestRun& b) {
  const auto x = weights(*a.model), y = weights(*b.model);
  for (const auto& [name, value] : x) EXPECT_TRUE(at::equal(value, y.at(name))) << name;
  const auto s = a.optimizer->state(), t = b.optimizer->state();
  for (const auto& [name, value] : s) EXPECT_TRUE(at::equal(value, t.at(name))) << name;
  EXPECT_EQ(a.optimizer->steps(), b.optimizer->steps());
}

}  // namespace apus::golden
