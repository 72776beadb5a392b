// SPDX-License-Identifier: Apache-2.0
// A checkpoint on an accelerator, beside what the device can do at most: prompts, decoding of few and of many
// sequences, steps of training. One JSON object a line, as soon as it is known. Usage: gpu_bench MODEL serve|train
// [--device cuda] [--dtype bfloat16] [--tasks a,b,...] [--trace FOLDER]
//   serve: floor, prefill512, prefill4096, decode1, decode8, decode32, decode128, decode256 (greedy), sample256,
//          filter256 (top_k 20 and top_p 0.8)
//   train: lora4096, full4096 (length of the one sequence), lora4096-recompute, lora4096-selective (what is computed
//          again)
//   --trace: one more run of each is traced, FOLDER/TASK.json
//   --quantised nf4|fp4|int8|fp8|hqq4: how weights are held
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "algos/sft.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/train/random_batch.h"
#include "checkpoint/adapter.h"
#include "checkpoint/weights.h"
#include "device/device.h"
#include "device/trace.h"
#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "nn/training_step.h"
#include "ops/ops.h"
#include "tensor/dtype.h"
#include "train/param_groups.h"
#include "train/trainable.h"

namespace {
using namespace apus;

struct Options {
  std::string model, mode, trace, quantised, device = "cuda", dtype = "bfloat16";
  std::vector<std::string> tasks;
};

void say(const std::string& task, Json result) {
  result["task"] = task;
  std::puts(result.dump().c_str());
  std::fflush(stdout);
}

std::string trace_file(const Options& o, const std::string& task) { return o.trace + "/" + task + ".json"; }

void traced(const std::string& file, const DeviceChoice& device, const std::function<void()>& work) {
  Trace trace(device.device);
  work();
  trace.finish(file);
}

// Bytes read and written a second by a copy, and operations of a product of two matrices.
void floors(const DeviceChoice& device) {
  const auto options = at::TensorOptions().device(device.device).dtype(at::kBFloat16);
  const at::Tensor from = at::randn({int64_t{1} << 30}, options);
  at::Tensor to = at::empty(from.sizes(), from.options());
  const at::Tensor a = at::randn({8192, 8192}, options);
  double copy = 1e30, product = 1e30;
  for (int i = 0; i < 6; ++i) {
    device.kind->synchronize(0);
    const Stopwatch watch;
    for (int n = 0; n < 4; ++n) to.copy_(from);
    device.kind->synchronize(0);
    copy = std::min(copy, watch.seconds() / 4);
    const Stopwatch second;
    for (int n = 0; n < 4; ++n) at::mm(a, a);
    device.kind->synchronize(0);
    product = std::min(product, second.seconds() / 4);
  }
  say("floor", {{"copy_tb_s", 2.0 * static_cast<double>(from.nbytes()) / copy * 1e-12},
                {"product_tflop_s", 2.0 * 8192 * 8192 * 8192 / product * 1e-12},
                {"device", device.kind->label(0)}});
}

std::vector<int32_t> prompt(int64_t length, int64_t salt) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>(100 + (i * 7919 + salt * 104729) % 20000));
  return ids;
}

// Output tokens a second, from the moment the last sequence has its first token.
double decode_rate(Engine& engine, int64_t count, int64_t new_tokens, Sampling sampling, int64_t salt) {
  std::vector<std::promise<void>> first(static_cast<size_t>(count)), last(static_cast<size_t>(count));
  std::atomic<int64_t> before_start{0};
  std::atomic<bool> started{false};
  std::vector<EngineRequest> requests(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    EngineRequest& request = requests[static_cast<size_t>(i)];
    request.prompt = prompt(128, salt * 1000 + i);
    request.sampling = sampling;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.max_new_tokens = new_tokens, request.sampling.ignore_eos = true;
    request.sink = [&, i, seen = int64_t{0}](const EngineEvent& event) mutable {
      if (seen == 0 && !event.tokens.empty()) first[static_cast<size_t>(i)].set_value();
      seen += static_cast<int64_t>(event.tokens.size());
      if (!started) before_start += static_cast<int64_t>(event.tokens.size());
      if (event.finish != Finish::None) last[static_cast<size_t>(i)].set_value();
    };
  }
  engine.submit_all(std::move(requests));
  for (auto& f : first) f.get_future().wait();
  started = true;
  const Stopwatch watch;
  for (auto& l : last) l.get_future().wait();
  return static_cast<double>(count * new_tokens - before_start) / watch.seconds();
}

std::unique_ptr<Model> loaded(const Options& o, LoadOptions how) {
  const Json config = read_model_config(o.model);
  auto model = make_model(config);
  quant::Wish wish;
  if (!o.quantised.empty()) {
    wish.method = o.quantised == "fp8" ? "fp8" : o.quantised == "hqq4" ? "hqq" : "bnb";
    wish.bits = o.quantised.back() == '4' ? 4 : 8;
    wish.quant_type = o.quantised == "fp4" ? "fp4" : "nf4", wish.double_quant = false;
  }
  const auto quantised = held_weights(config, wish, o.model);
  how.quantised = quantised.get();
  load_weights(*model, TensorFolder(o.model), how);
  return model;
}

void serve(const Options& o, const DeviceChoice& device) {
  at::AutoGradMode no_grad(false);
  const auto dtype = *parse_float_type(o.dtype);
  const Stopwatch loading;
  const auto model = loaded(o, {.dtype = dtype, .device = device.device, .answers_only = true});
  model->visit_modules([](const std::string&, Module& m) { m.prepare_inference(); });
  device.kind->synchronize(0);
  say("load",
      {{"seconds", loading.seconds()}, {"memory_gib", static_cast<double>(device.kind->memory(0).peak) / (1 << 30)}});
  Engine engine(*model, at::TensorOptions().dtype(dtype).device(device.device),
                {.max_step_tokens = 8192,
                 .max_sequences = 256,
                 .max_model_len = 8192,
                 .cache_bytes = int64_t{16} << 30,
                 .prefix_caching = false});
  generate(engine, {prompt(16, 0)}, {.temperature = 0, .max_new_tokens = 4});  // first touches
  int64_t salt = 1;
  for (const std::string& task : o.tasks) {
    if (task == "floor") {
      floors(device);
    } else if (task.starts_with("prefill")) {
      const int64_t length = std::stoll(task.substr(7));
      double best = 0;
      const auto once = [&] {
        const Stopwatch watch;
        generate(engine, {prompt(length, 100000 + salt++)}, {.temperature = 0, .max_new_tokens = 1});
        best = std::max(best, static_cast<double>(length) / watch.seconds());
      };
      for (int i = 0; i < 4; ++i) once();
      say(task, {{"tokens_s", best}});
      if (!o.trace.empty()) traced(trace_file(o, task), device, once);
    } else {
      Sampling sampling{.temperature = task.starts_with("decode") ? 0.0 : 1.0};
      if (task.starts_with("filter")) sampling.temperature = 0.7, sampling.top_k = 20, sampling.top_p = 0.8;
      const int64_t count = std::stoll(task.substr(6));
      const int64_t tokens = count == 1 ? 128 : 96;
      const auto once = [&](int64_t n) { return decode_rate(engine, count, n, sampling, salt++); };
      once(16);
      const double rate = std::max(once(tokens), once(tokens));
      say(task, {{"tokens_s", rate}, {"ms_a_step", 1e3 * static_cast<double>(count) / rate}});
      if (!o.trace.empty()) traced(trace_file(o, task), device, [&] { once(6); });
    }
  }
}

// lora4096-recompute: what is trained, how long, and whether layers run again in the backward pass.
void train(const Options& o, const DeviceChoice& device) {
  for (const std::string& task : o.tasks) {
    const bool lora = task.starts_with("lora");
    const int64_t length = std::stoll(task.substr(4));
    auto model =
        loaded(o, {.dtype = *parse_float_type(o.dtype), .device = device.device, .own = [&](const std::string&) {
                     return !lora;
                   }});
    if (lora)
      make_adapter(*model, {.r = 8, .alpha = 32, .target_modules = all_linear_suffixes(linear_modules(*model))}, 1);
    const auto optimizer =
        make_optimizer({.kind = "adamw_torch", .rounding = Rounding::Master, .arguments = {}},
                       make_groups(trainable_params(*model), {.lr = 1e-5, .weight_decay = 0.1, .lr_by_prefix = {}}));
    optimizer->make_state();
    Sft sft({});
    Actors actors{.policy = *model};
    Forward forward;
    if (task.ends_with("recompute")) forward.recomputed_layers = model->shape().layers;
    if (task.ends_with("selective")) forward.selective = Forward::Selective{};
    double loss_value = 0;
    uint64_t seed = 0;
    device.kind->reset_peak(0);
    const auto once = [&] {
      Batch batch = bench::random_batch(length, model->shape().vocab, seed++).to(device.device);
      set_training(batch.step, {.dropout_seed = seed, .router = {}, .table = {}});
      device.kind->synchronize(0);
      const Stopwatch watch;
      const Loss loss = sft.loss(actors, batch, forward);
      (loss.sum / static_cast<double>(batch.trained)).backward();
      const double norm = std::sqrt(ops::sum_of_squares(optimizer->gradients()));
      optimizer->step(1, std::min(1.0, 1 / (norm + 1e-6)));
      optimizer->zero_grad();
      device.kind->synchronize(0);
      loss_value = loss.sum.item<double>() / static_cast<double>(batch.trained);
      return watch.seconds();
    };
    once();
    double best = 1e30;
    for (int i = 0; i < 4; ++i) best = std::min(best, once());
    say(task, {{"tokens_s", static_cast<double>(length) / best},
               {"ms_a_step", best * 1e3},
               {"loss", loss_value},
               {"peak_gib", static_cast<double>(device.kind->memory(0).peak) / (1 << 30)}});
    if (!o.trace.empty()) traced(trace_file(o, task), device, once);
    model.reset();
    device.kind->release_cached();
  }
}

Options read(int argc, char** argv) {
  require(argc >= 3, Fault::Usage, "gpu_bench MODEL serve|train [--option value ...]");
  std::map<std::string, std::string> given;
  for (int i = 3; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  Options o{.model = argv[1], .mode = argv[2]};
  const auto take = [&](const char* name, std::string& to) {
    if (given.contains(name)) to = given[name];
  };
  std::string tasks =
      o.mode == "serve"
          ? "floor,prefill512,prefill4096,decode1,decode8,decode32,decode128,decode256,sample256,filter256"
          : "lora2048,lora4096,lora4096-selective,lora4096-recompute,full4096-recompute";
  take("--tasks", tasks), take("--trace", o.trace), take("--device", o.device), take("--dtype", o.dtype),
      take("--quantised", o.quantised);
  std::istringstream list(tasks);
  for (std::string task; std::getline(list, task, ',');) o.tasks.push_back(task);
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options o = read(argc, argv);
    const DeviceChoice device = open_device(o.device);
    o.mode == "serve" ? serve(o, device) : train(o, device);
    return 0;
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
}
