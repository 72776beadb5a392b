// SPDX-License-Identifier: Apache-2.0
// How fast the engine runs a checkpoint: a prompt of 512, decoding 1, 8 and 32 sequences of 128 + 64 tokens, and one
// whose text repeats, with and without guesses at it; beside them the floor of single-sequence decoding: the weights
// read once a token at the rate at which this machine reads memory.
// Usage: infer_bench MODEL [bfloat16|float32] [device] [sequences] [quantised] [products]
// prints one JSON object, rates in tokens/s
//   MODEL: a folder, or a GGUF file, whose weights are held as they are in it
//   sequences: decode that many only (1, say); 0: everything
//   quantised: how weights are held: nf4, fp4, int8, fp8, hqq4 (as GPTQ and AWQ: codes, scales, zeros); -: as in MODEL
//   products: of quantised weights: int8, or exact
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/gguf_folder.h"
#include "checkpoint/weights.h"
#include "device/device.h"
#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "ops/quantised.h"

namespace {
using namespace apus;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages >> pages;
  return pages * 4096;
}

// `period` > 0: it repeats.
std::vector<int32_t> prompt(int64_t length, int64_t salt, int64_t period = 0) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<int32_t>(100 + ((period ? i % period : i) * 7919 + salt * 104729) % 20000));
  return ids;
}

struct Alternation {
  double token_s = 1e30, read_gb_s = 0;
};

// The fastest single token of one sequence, and the fastest pass over memory in between: on a machine that others use
// too, the two best moments compare where averages do not.
Alternation fastest_token(Engine& engine, const std::function<double()>& read_once) {
  Alternation best;
  for (int64_t round = 0; round < 8; ++round) {
    double last = 0;
    std::promise<void> done;
    EngineRequest request;
    request.prompt = prompt(128, 5000 + round);
    request.sampling = {.temperature = 0, .max_new_tokens = 16, .ignore_eos = true};
    request.sink = [&](const EngineEvent& event) {
      const double now = seconds();
      if (last > 0 && !event.tokens.empty()) best.token_s = std::min(best.token_s, now - last);
      last = now;
      if (event.finish != Finish::None) done.set_value();
    };
    engine.submit(std::move(request));
    done.get_future().wait();
    best.read_gb_s = std::max(best.read_gb_s, read_once());
  }
  return best;
}

// Output tokens a second of `count` sequences, from the moment the last of them has its first token.
double decode_rate(Engine& engine, int64_t count, int64_t prompt_length, int64_t new_tokens, int64_t salt,
                   int64_t period = 0) {
  std::vector<std::promise<void>> first(static_cast<size_t>(count)), last(static_cast<size_t>(count));
  std::atomic<int64_t> before_start{0};
  std::atomic<bool> started{false};
  for (int64_t i = 0; i < count; ++i) {
    EngineRequest request;
    request.prompt = prompt(prompt_length, salt * 100 + i, period);
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

// Reads memory that no cache holds with all threads together; returns the better of two passes, in GB/s.
class Reader {
 public:
  double operator()() {
    double best = 0;
    for (int round = 0; round < 2; ++round) {
      const double start = seconds();
      at::parallel_for(0, kParts, 1, [&](int64_t begin, int64_t end) {
        int64_t sum[16] = {};
        for (int64_t i = begin * kWords / kParts; i < end * kWords / kParts; i += 16) {
          for (int64_t line = 512; line < 528; line += 8) __builtin_prefetch(data_ + i + line, 0, 2);
          for (int64_t j = 0; j < 16; ++j) sum[j] += data_[i + j];
        }
        for (const int64_t s : sum) total_ += s;
      });
      if (total_ > 0) best = std::max(best, 8e-9 * kWords / (seconds() - start));
    }
    return best;
  }

 private:
  static constexpr int64_t kWords = (int64_t{1} << 30) / 8, kParts = 64;
  const at::Tensor memory_ = at::full({kWords}, 1, at::kLong);
  const int64_t* data_ = memory_.data_ptr<int64_t>();
  std::atomic<int64_t> total_{0};
};

quant::Wish wish_of(const std::string& name) {
  quant::Wish wish;
  if (name.empty() || name == "-") return wish;
  wish.method = name == "fp8" ? "fp8" : name == "hqq4" ? "hqq" : "bnb", wish.bits = name.back() == '4' ? 4 : 8;
  wish.quant_type = name == "fp4" ? "fp4" : "nf4", wish.double_quant = false;
  return wish;
}

std::unique_ptr<Model> load(const std::string& dir, LoadOptions how, const quant::Wish& wish) {
  const Json config = read_model_config(dir);
  auto model = make_model(config);
  const auto quantised = held_weights(config, wish, dir);
  how.quantised = quantised.get();
  load_weights(*model, TensorFolder(dir), how);
  return model;
}

bool ties(Model& model) {
  bool tied = false;
  model.visit([&](const std::string&, Param& p) { tied = tied || !p.tied.empty(); });
  return tied;
}

// Bytes of the weights that one token multiplies by: all but an untied embedding table.
int64_t weight_bytes(Model& model) {
  int64_t bytes = 0;
  model.visit([&](const std::string& name, Param& p) {
    const bool table = name == model.embed_name() + ".weight";
    if (p.tied.empty()) bytes += table && !ties(model) ? 0 : ops::held_bytes(p.data);
  });
  return bytes;
}

// One sequence whose text repeats, with and without guesses at what comes next, three times in turn: the best of each.
Json guessing_rates(const Model& model, at::TensorOptions options) {
  EngineSpec spec{.max_step_tokens = 512, .max_model_len = 1024, .cache_bytes = 75 << 20, .prefix_caching = false};
  Engine plain(model, options, spec);
  spec.draft = {.tokens = 4, .longest = 3};
  Engine guessing(model, options, spec);
  double without = 0, with = 0;
  for (int64_t round = 0; round < 3; ++round) {
    without = std::max(without, decode_rate(plain, 1, 128, 128, 7 + round, 16));
    with = std::max(with, decode_rate(guessing, 1, 128, 128, 7 + round, 16));
  }
  const EngineStats s = guessing.stats();
  return {{"decode_repeating", without},          {"decode_repeating_guessed", with}, {"guessed", s.drafted_tokens},
          {"guessed_rightly", s.accepted_tokens}, {"tokens", s.generated_tokens},     {"passes", s.steps}};
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
  if (argc < 2)
    return std::fprintf(stderr, "usage: infer_bench MODEL [dtype] [device] [sequences] [quantised] [products]\n"), 2;
  try {
    at::AutoGradMode no_grad(false);
    const auto choice = open_device(argc > 3 ? argv[3] : "cpu");
    const auto dtype = *parse_float_type(argc > 2 ? argv[2] : "bfloat16");
    const double start = seconds();
    const auto file = gguf_meant(argv[1]);
    const std::string dir = file ? gguf_folder(*file).string() : argv[1];
    const auto products = argc > 6 && std::string(argv[6]) == "exact" ? ops::Products::Exact : ops::Products::Int8;
    const LoadOptions how{.dtype = dtype, .device = choice.device, .products = products, .answers_only = true};
    const auto model = load(dir, how, wish_of(argc > 5 ? argv[5] : ""));
    const int64_t bytes = weight_bytes(*model);  // before the device packs them
    model->visit_modules([](const std::string&, Module& m) { m.prepare_inference(); });
    const double loaded = seconds() - start;
    Engine engine(*model, at::TensorOptions().dtype(dtype).device(choice.device),
                  {.max_step_tokens = 512, .max_model_len = 1024, .cache_bytes = 150 << 20, .prefix_caching = false});
    generate(engine, {prompt(16, 0)}, {.temperature = 0, .max_new_tokens = 4});  // first touches
    Json result;
    result["load_s"] = loaded, result["weights_mb"] = static_cast<double>(bytes) / 1e6;
    const int64_t only = argc > 4 ? std::atoll(argv[4]) : 0;
    if (!only) result["prefill_512"] = prefill_rate(engine, 512);
    for (const int64_t count : {1, 8, 32})
      if (!only || only == count) result[str("decode_", count)] = decode_rate(engine, count, 128, 64, count);
    if (!only || only == 1)
      result["guessing"] = guessing_rates(*model, at::TensorOptions().dtype(dtype).device(choice.device));
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    result["resident_mb"] = resident_bytes() / 1e6;
    result["peak_resident_mb"] = static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
    const Alternation best = fastest_token(engine, [reader = std::make_shared<Reader>()] { return (*reader)(); });
    result["best_token_ms"] = best.token_s * 1e3;
    result["read_gb_s"] = best.read_gb_s;
    result["floor_ms"] = static_cast<double>(bytes) / best.read_gb_s / 1e6;
    std::printf("%s\n", result.dump().c_str());
    return 0;
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
}
