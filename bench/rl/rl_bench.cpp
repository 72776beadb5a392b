// SPDX-License-Identifier: Apache-2.0
// Where the time of a step of GRPO goes, and what a shared beginning of two answers saves. Prints one JSON object.
// Usage: rl_bench MODEL_DIR step  [--prompts 8] [--samples 8] [--prompt 128] [--answer 128] [--micro 8] ...
//        rl_bench MODEL_DIR pairs [--prompts 4] [--prompt 256] [--answer 256] ...
//        [--steps 2] [--dtype float32] [--share_prefix false]; pairs measures both ways in turn
#include <ATen/ops/full_like.h>
#include <sys/resource.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "algos/dpo.h"
#include "algos/grpo.h"
#include "base/clock.h"
#include "base/random.h"
#include "checkpoint/weights.h"
#include "device/device.h"
#include "nn/training_step.h"
#include "ops/ops.h"
#include "tensor/dtype.h"
#include "train/param_groups.h"
#include "train/rollout.h"
#include "train/trainable.h"

namespace {
using namespace apus;
using Settings = std::map<std::string, std::string>;

class LastToken final : public SingleReward {
 public:
  explicit LastToken(const RewardOptions&) {}
  double one(const RewardInput& answer) const override { return answer.tokens.back() % 7; }
};
const RegisterReward<LastToken> last_token("bench last token");

// Of all threads: what a pass costs, whatever else the machine does.
double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::unique_ptr<Model> loaded(const std::string& dir, const std::string& type, bool own) {
  auto model = make_model(read_model_config(dir));
  load_weights(*model, TensorFolder(dir),
               {.dtype = *parse_float_type(type), .device = at::kCPU, .own = [=](const std::string&) { return own; }});
  return model;
}

std::vector<int32_t> random_ids(uint64_t seed, int64_t count, int64_t vocabulary) {
  Random random(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary))));
  return ids;
}

struct Bench {
  Bench(const std::string& dir, Settings given)
      : o(std::move(given)),
        model_dir(dir),
        policy(loaded(dir, o["--dtype"], true)),
        other(loaded(dir, o["--dtype"], false)) {
    other->visit([](const std::string&, Param& p) { p.trainable = false; });
    optimizer = make_optimizer(
        {.arguments = {}}, make_groups(trainable_params(*policy), {.lr = 1e-6, .weight_decay = 0, .lr_by_prefix = {}}));
    optimizer->make_state();
  }
  int64_t number(const char* name) const { return std::stoll(o.at(name)); }
  bool flag(const char* name) const { return o.at(name) == "true"; }

  // Seconds of the forward and backward passes of an update and of the optimizer's step.
  double update(Algorithm& algorithm, Actors& actors, Update& batches, std::map<std::string, Ratio>& metrics) {
    const Stopwatch watch;
    double total = 0;
    for (const Batch& batch : batches) total += algorithm.count(batch);
    for (Batch& batch : batches) {
      set_training(batch.step, {});
      Loss loss = algorithm.loss(actors, batch, Forward{});
      loss.sum.backward(at::full_like(loss.sum, 1 / total));
      metrics.merge(loss.metrics);
    }
    const double norm = std::sqrt(ops::sum_of_squares(optimizer->gradients()));
    optimizer->step(1, std::min(1.0, 1 / (norm + 1e-6)));
    optimizer->zero_grad();
    return watch.seconds();
  }

  Json step() {
    GrpoOptions g;
    g.reward_funcs = {"bench last token"}, g.num_generations = number("--samples");
    g.max_completion_length = number("--answer"), g.share_prefix = flag("--share_prefix");
    const int64_t answers = number("--prompts") * number("--samples"), micro = number("--micro");
    const LoopOptions loop{.per_device_train_batch_size = micro, .gradient_accumulation_steps = answers / micro};
    Sampling sampling;
    sampling.temperature = 1, sampling.ignore_eos = true;
    Grpo grpo(g);
    grpo.begin({.loop = loop, .tokenizer = Tokenizer::load(model_dir), .sampling = sampling});
    Rollout rollout(*policy, at::TensorOptions().dtype(*parse_float_type(o["--dtype"])),
                    {.max_sequences = answers, .max_model_len = number("--prompt") + number("--answer") + 1});
    Actors actors{.policy = *policy, .reference = Reference::of(*other), .rollout = &rollout};
    Json steps = Json::array();
    for (int64_t s = 0; s < number("--steps"); ++s) {
      Samples questions;
      for (int64_t q = 0; q < number("--prompts"); ++q) {
        Sample& sample = questions.emplace_back();
        sample.ids = random_ids(static_cast<uint64_t>(s * 1000 + q), number("--prompt"), policy->shape().vocab);
        sample.trained.assign(sample.ids.size(), 0), sample.row = "{}";
      }
      actors.step = s;
      const Stopwatch watch;
      std::vector<Update> updates = grpo.collect(actors, {questions});
      const double collected = watch.seconds();
      std::map<std::string, Ratio> metrics;
      const double updated = update(grpo, actors, updates.at(0), metrics);
      rollout.weights_changed();
      const double all = watch.seconds();
      const double generation = metrics.at("completions/tokens_per_second").count.item<double>();
      const Stopwatch again;  // the reference's passes once more, by themselves
      for (const Batch& batch : updates[0]) actors.reference->logprobs(batch, 1);
      const double logprobs = std::min(again.seconds(), collected - generation);
      steps.push_back({{"seconds", all},
                       {"generation", generation / all},
                       {"logprobs", logprobs / all},
                       {"update", updated / all},
                       {"else", (all - generation - logprobs - updated) / all},
                       {"mismatch", metrics.at("rollout_mismatch/max").sum.item<double>()}});
    }
    return steps;
  }

  Json pairs() {
    Samples samples;
    for (int64_t p = 0; p < number("--prompts"); ++p)
      for (int64_t side = 0; side < 2; ++side) {
        Sample& sample = samples.emplace_back();
        const auto seed = static_cast<uint64_t>(p);
        sample.ids = random_ids(seed, number("--prompt"), policy->shape().vocab);
        const auto answer =
            random_ids(seed + 1000 * static_cast<uint64_t>(side + 1), number("--answer"), policy->shape().vocab);
        sample.trained.assign(sample.ids.size(), 0);
        sample.ids.insert(sample.ids.end(), answer.begin(), answer.end());
        sample.trained.resize(sample.ids.size(), 1), sample.grouped = side == 1;
      }
    Actors actors{.policy = *policy, .reference = Reference::of(*other)};
    Json out = Json::array();
    for (int64_t s = 0; s < number("--steps"); ++s) {
      double seconds[2], cpu[2];
      for (const bool shared : {false, true}) {
        const double before = processor_seconds();
        Dpo dpo({.share_prefix = shared});
        std::vector<Update> updates = dpo.collect(actors, {samples});
        std::map<std::string, Ratio> metrics;
        seconds[shared] = update(dpo, actors, updates.at(0), metrics);
        cpu[shared] = processor_seconds() - before;
      }
      out.push_back({{"plain_s", seconds[0]},
                     {"shared_s", seconds[1]},
                     {"faster", seconds[0] / seconds[1]},
                     {"less_processor_time", cpu[0] / cpu[1]}});
    }
    return out;
  }

  Settings o;
  std::string model_dir;
  std::unique_ptr<Model> policy, other;
  std::unique_ptr<Optimizer> optimizer;
};

int run(int argc, char** argv) {
  const std::string kind = argc > 2 ? argv[2] : "";
  require(kind == "step" || kind == "pairs", Fault::Usage, "rl_bench MODEL_DIR step|pairs [--option value ...]");
  Settings o = {
      {"--steps", "2"}, {"--dtype", "float32"}, {"--share_prefix", "false"}, {"--samples", "8"}, {"--micro", "8"}};
  const bool step = kind == "step";
  o["--prompts"] = step ? "8" : "4", o["--prompt"] = o["--answer"] = step ? "128" : "256";
  for (int i = 3; i + 1 < argc; i += 2) {
    require(o.count(argv[i]) > 0, Fault::Usage, "no option ", argv[i]);
    o[argv[i]] = argv[i + 1];
  }
  Bench bench(argv[1], o);
  const Json out = {{"kind", kind}, {"options", o}, {"steps", step ? bench.step() : bench.pairs()}};
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
