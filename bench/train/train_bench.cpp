// SPDX-License-Identifier: Apache-2.0
// How fast a checkpoint trains and in how much memory: steps over one sequence of random tokens.
// Usage: train_bench MODEL_DIR lora|full LENGTH [--steps 3] [--dtype bfloat16] [--recompute
// true|false|LAYERS|selective[,LAYERS]] [--optim adamw_torch]
//        [--master float32|stochastic] [--in_backward false] [--dropout 0] [--device cpu]     prints one JSON object
// --in_backward true: each weight is updated in the backward pass, and gradients are not clipped.
#include <ATen/TensorOperators.h>
#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "algos/sft.h"
#include "base/clock.h"
#include "bench/train/random_batch.h"
#include "checkpoint/adapter.h"
#include "checkpoint/weights.h"
#include "device/device.h"
#include "nn/training_step.h"
#include "ops/ops.h"
#include "tensor/dtype.h"
#include "train/param_groups.h"
#include "train/trainable.h"
#include "train/update_in_backward.h"

namespace {
using namespace apus;

double peak_gib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

// Of all threads: what a step costs, whatever else the machine does.
double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Pages that were touched for the first time since they were given.
int64_t fresh_pages() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// true, false, so many layers; or selective: with what feed-forwards give kept but in so many layers.
Forward forward_of(const std::string& recompute, int64_t layers) {
  Forward forward;
  const std::string selective = "selective";
  if (recompute.rfind(selective, 0) == 0) {
    forward.selective = Forward::Selective{.feed_forward = true};
    if (recompute.size() > selective.size())
      forward.recomputed_layers = std::stoll(recompute.substr(selective.size() + 1));
  } else if (recompute != "false") {
    forward.recomputed_layers = recompute == "true" ? layers : std::stoll(recompute);
  }
  return forward;
}

int run(int argc, char** argv) {
  require(argc >= 4, Fault::Usage, "train_bench MODEL_DIR lora|full LENGTH [--option value ...]");
  std::map<std::string, std::string> o = {
      {"--steps", "3"},        {"--dtype", "bfloat16"}, {"--recompute", "true"}, {"--optim", "adamw_torch"},
      {"--master", "float32"}, {"--dropout", "0"},      {"--device", "cpu"},     {"--in_backward", "false"}};
  for (int i = 4; i + 1 < argc; i += 2) o[argv[i]] = argv[i + 1];
  const bool lora = std::string(argv[2]) == "lora";
  const int64_t length = std::stoll(argv[3]), steps = std::stoll(o["--steps"]);
  const DeviceChoice device = open_device(o["--device"]);
  const Stopwatch start;
  auto model = make_model(read_model_config(argv[1]));
  load_weights(*model, TensorFolder(argv[1]),
               {.dtype = *parse_float_type(o["--dtype"]), .device = device.device, .own = [&](const std::string&) {
                  return !lora;
                }});
  if (lora)
    make_adapter(*model,
                 {.r = 8,
                  .alpha = 32,
                  .dropout = std::stod(o["--dropout"]),
                  .target_modules = all_linear_suffixes(linear_modules(*model))},
                 1);
  const auto params = trainable_params(*model);
  const auto optimizer =
      make_optimizer({.kind = o["--optim"],
                      .rounding = o["--master"] == "stochastic" ? Rounding::Stochastic : Rounding::Master,
                      .arguments = {}},
                     make_groups(params, {.lr = 1e-5, .weight_decay = 0.1, .lr_by_prefix = {}}));
  optimizer->make_state();
  const auto in_backward = o["--in_backward"] == "true" ? std::make_unique<UpdateInBackward>(*optimizer) : nullptr;
  Sft sft({});
  Actors actors{.policy = *model};
  const Forward forward = forward_of(o["--recompute"], model->shape().layers);
  Json times = Json::array();
  const double loaded = start.seconds();
  double first_step = 0, best = 1e30, least_cpu = 1e30;
  for (int64_t step = 0; step < steps; ++step) {
    Batch batch = bench::random_batch(length, model->shape().vocab, static_cast<uint64_t>(step)).to(device.device);
    set_training(batch.step, {.dropout_seed = static_cast<uint64_t>(step) + 1, .router = {}, .table = {}});
    const Stopwatch watch;
    const double cpu = processor_seconds();
    const int64_t pages = fresh_pages();
    if (in_backward) in_backward->begin(1);
    const Loss loss = sft.loss(actors, batch, forward);
    const double value = loss.sum.item<double>() / static_cast<double>(batch.trained), t1 = watch.seconds();
    (loss.sum / static_cast<double>(batch.trained)).backward();
    device.kind->synchronize(0);
    const double t2 = watch.seconds();
    const double norm = in_backward ? in_backward->end().norm : std::sqrt(ops::sum_of_squares(optimizer->gradients()));
    if (!in_backward) optimizer->step(1, std::min(1.0, 1 / (norm + 1e-6)));
    optimizer->zero_grad();
    device.kind->synchronize(0);
    const double t3 = watch.seconds();
    if (step == 0) first_step = start.seconds();
    best = std::min(best, t3), least_cpu = std::min(least_cpu, processor_seconds() - cpu);
    times.push_back({{"loss", value},
                     {"norm", norm},
                     {"forward_s", t1},
                     {"backward_s", t2 - t1},
                     {"optimizer_s", t3 - t2},
                     {"cpu_s", processor_seconds() - cpu},
                     {"page_faults", fresh_pages() - pages}});
  }
  const Json out = {{"tuner", argv[2]},
                    {"length", length},
                    {"tokens_per_s", static_cast<double>(length) / best},
                    {"cpu_s_per_step", least_cpu},
                    {"peak_gib", peak_gib()},
                    {"loaded_s", loaded},
                    {"first_step_done_s", first_step},
                    {"options", o},
                    {"steps", times}};
  std::puts(out.dump(1).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
