// SPDX-License-Identifier: Apache-2.0
#include "run/lora_ga.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>

#include "base/log.h"
#include "checkpoint/gradient_init.h"
#include "data/source/sample_source.h"
#include "nn/parts.h"
#include "nn/training_step.h"
#include "parallel/gradient_hook.h"

namespace apus {
namespace {

// Sums of the gradients of the weights below factors, on the host, where each goes as soon as it is there.
class WeightGradients {
 public:
  WeightGradients(Model& model, const Adapter& adapter) {
    each_lora_layer(model, adapter, [&](const std::string& module, Adaptable& layer, Lora&) {
      const at::Tensor weight = layer.weight().data;
      require(weight.defined() && weight.is_floating_point() && !is_cut(layer.weight(), model.mesh()), Fault::Usage,
              "--init_weights lora-ga looks at whole plain weights, and that of ", module,
              " is quantised or shared out over several ranks: use --init_weights true");
      weights_.push_back(weight);
      at::Tensor(weight).set_requires_grad(true);
      hooks_.push_back(std::make_unique<GradientHook>(weight, [this, module, weight] {
        const at::Tensor gradient = weight.grad().to(at::kCPU, at::kFloat);
        at::Tensor& sum = sums_[module];
        sum = sum.defined() ? sum.add_(gradient) : gradient.clone();
        at::Tensor(weight).mutable_grad().reset();
      }));
    });
  }
  ~WeightGradients() {
    hooks_.clear();
    for (at::Tensor& weight : weights_) weight.set_requires_grad(false);
  }
  std::map<std::string, at::Tensor>& sums() { return sums_; }

 private:
  std::vector<at::Tensor> weights_;
  std::vector<std::unique_ptr<GradientHook>> hooks_;
  std::map<std::string, at::Tensor> sums_;
};

bool fits(const Samples& samples, int64_t longest) {
  for (const Sample& sample : samples)
    if (std::ssize(sample.ids) > longest) return false;
  return true;
}

}  // namespace

void begin_lora_by_gradients(const TrainRun& o, Algorithm& algorithm, SampleSource& rows, const Forward& forward,
                             TunedModel& tuned, Comm& ranks, c10::Device device) {
  const LoraGaOptions& how = o.tuner.lora_ga;
  WeightGradients gradients(*tuned.model, *tuned.adapter);
  Actors actors{.policy = *tuned.model};
  actors.data_ranks = &ranks;
  int64_t taken = 0;
  rows.start(0);
  while (taken < how.batch_size * how.iters) {
    std::optional<Samples> samples = rows.next();
    if (!samples) break;
    if (!fits(*samples, how.max_length)) continue;
    taken += std::ssize(*samples);
    for (const Update& update : algorithm.collect(actors, {std::move(*samples)}))
      for (const Batch& each : update) {
        Batch batch = each.to(device);
        set_training(batch.step, {});
        const double count = algorithm.count(batch);
        const Loss loss = algorithm.loss(actors, batch, forward);
        if (count > 0) loss.sum.backward(at::full_like(loss.sum, 1 / count));
      }
  }
  rows.start(0);
  for (auto& [module, sum] : gradients.sums())
    if (ranks.size() > 1) ranks.all_reduce(sum)->wait();
  require(taken > 0, Fault::Usage, "--init_weights lora-ga: no row has at most --lora_ga_max_length ", how.max_length,
          " tokens");
  begin_by_gradients(*tuned.model, *tuned.adapter, gradients.sums(), how.how, static_cast<uint64_t>(o.common.seed));
  log_info("factors of ", gradients.sums().size(), " layers begin with the gradients of ", taken, " rows");
}

}  // namespace apus
