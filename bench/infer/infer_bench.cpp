// SPDX-License-Identifier: Apache-2.0
// How fast the engine runs a checkpoint: a prompt of 512, and decoding 1, 8 and 32 sequences of 128 + 64 tokens.
// Usage: infer_bench MODEL_DIR [bfloat16|float32] [device]      prints one JSON object, rates in tokens/s
#include <ATen/core/grad_mode.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/weights.h"
#include "device/device.h"
#include "engine/engine.h"
#include "engine/generate.h"

namespace {
using namespace apus;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages >> pages;
  return pages * 4096;
}

std::vector<int32_t> prompt(int64_t length, int64_t salt) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>(100 + (i * 7919 + salt * 104729) % 20000));
  return ids;
}

// Output tokens a second of `count` sequences, from the moment the last of them has its first token.
double decode_rate(Engine& engine, int64_t count, int64_t prompt_length, int64_t new_tokens, int64_t salt) {
  std::vector<std::promise<void>> first(static_cast<size_t>(count)), last(static_cast<size_t>(count));
  std::atomic<int64_t> before_start{0};
  std::atomic<bool> started{false};
  for (int64_t i = 0; i < count; ++i) {
    EngineRequest request;
    request.prompt = prompt(prompt_length, salt * 100 + i);
    request.sampling = {.temperature = 0, .max_new_tokens = new_tokens, .ignore_eos = true};
    request.sink = [&, i, seen = int64_t{0}](const EngineEvent& event) mutable {
      if (seen == 0 && !event.tokens.empty()) first[static_cast<size_t>(i)].set_value();
      seen += static_cast<int64_t>(event.tokens.size());
      if (!started) before_start += static_cast<int64_t>(event.tokens.size());
      if (event.finish != Finish::None) last[static_cast<size_t>(i)].set_value();
    };
    engine.submit(std::move(request));
  }
  for (auto& f : first) f.get_future().wait();
  started = true;
  const double start = seconds();
  for (auto& l : last) l.get_future().wait();
  return static_cast<double>(count * new_tokens - before_start) / (seconds() - start);
}

double prefill_rate(Engine& engine, int64_t length) {
  double best = 0;
  for (int64_t round = 0; round < 3; ++round) {
    const double start = seconds();
    generate(engine, {prompt(length, 1000 + round)}, {.temperature = 0, .max_new_tokens = 1});
    best = std::max(best, static_cast<double>(length) / (seconds() - start));
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: infer_bench MODEL_DIR [dtype] [device]\n"), 2;
  try {
    at::AutoGradMode no_grad(false);
    const auto choice = open_device(argc > 3 ? argv[3] : "cpu");
    const auto dtype = *parse_float_type(argc > 2 ? argv[2] : "bfloat16");
    const double start = seconds();
    const auto model = load_model(argv[1], {.dtype = dtype, .device = choice.device});
    model->visit_modules([](const std::string&, Module& m) { m.prepare_inference(); });
    const double loaded = seconds() - start;
    Engine engine(*model, at::TensorOptions().dtype(dtype).device(choice.device), {.max_step_tokens = 512, .max_model_len = 1024, .cache_bytes = 150 << 20, .prefix_caching = false});
    generate(engine, {prompt(16, 0)}, {.temperature = 0, .max_new_tokens = 4});  // first touches
    Json result;
    result["load_s"] = loaded;
    result["prefill_512"] = prefill_rate(engine, 512);
    result["decode_1"] = decode_rate(engine, 1, 128, 64, 1);
    result["decode_8"] = decode_rate(engine, 8, 128, 64, 2);
    result["decode_32"] = decode_rate(engine, 32, 128, 64, 3);
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    result["resident_mb"] = resident_bytes() / 1e6;
    result["peak_resident_mb"] = static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
    std::printf("%s\n", result.dump().c_str());
    return 0;
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
}
