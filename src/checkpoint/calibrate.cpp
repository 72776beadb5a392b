// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/calibrate.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/calibrated_layer.h"
#include "quant/format.h"

namespace apus {

namespace {
constexpr int64_t kLogitRows = 64;    // tokens whose logits exist at once
constexpr int64_t kJudgedAtOnce = 8;  // rows

std::vector<LayerBatch> embedded(const Model& model, const std::vector<std::vector<int64_t>>& texts, int64_t at_once,
                                 c10::Device device) {
  std::vector<LayerBatch> batches;
  for (size_t first = 0; first < texts.size(); first += static_cast<size_t>(at_once)) {
    const size_t end = std::min(texts.size(), first + static_cast<size_t>(at_once));
    std::vector<int32_t> lengths;
    std::vector<int64_t> ids;
    for (size_t i = first; i < end; ++i) {
      lengths.push_back(static_cast<int32_t>(texts[i].size()));
      ids.insert(ids.end(), texts[i].begin(), texts[i].end());
    }
    Step step = packed_step(lengths, at::kCPU);
    const Inputs inputs(at::tensor(ids, at::kLong));
    step.position = model.positions(inputs, step);
    model.begin(step);
    const at::Tensor x_TD = model.embed(inputs, step).to(device, at::kFloat);
    // Blocks of one length share what a step says of positions.
    auto shared = !batches.empty() && batches.back().step->length_q == lengths
                      ? batches.back().step
                      : std::make_shared<const Step>(moved(step, device));
    batches.push_back({inputs.id_T, x_TD, std::move(shared)});
  }
  return batches;
}

// A module's parameters in f32 on the device while this lives; afterwards they hold nothing, and pages of mapped files
// are given back.
class Widened {
 public:
  Widened(Module& module, c10::Device device) : module_(module) {
    module.visit([&](const std::string&, Param& p) {
      if (p.mapped) mapped_.push_back(p.data);
      p.data = p.data.to(device, at::kFloat);
      p.mapped = false;
    });
  }
  ~Widened() {
    module_.visit([](const std::string&, Param& p) { p.data = at::Tensor(); });
    for (const at::Tensor& t : mapped_) forget_mapped(t.data_ptr(), static_cast<int64_t>(t.nbytes()));
  }
  Widened(const Widened&) = delete;
  Widened& operator=(const Widened&) = delete;

 private:
  Module& module_;
  std::vector<at::Tensor> mapped_;
};

// Sum and number of -log p of each token by those before it in its block.
std::pair<double, int64_t> losses_of(const Model& model, const LayerBatch& batch, const at::Tensor& normed_TD) {
  const at::Tensor head = model.head_weight();
  double sum = 0;
  int64_t count = 0, begin = 0;
  for (const int32_t length : batch.step->length_q) {
    for (int64_t t = begin; t + 1 < begin + length; t += kLogitRows) {
      const int64_t n = std::min(kLogitRows, begin + length - 1 - t);
      const at::Tensor rows_TD = normed_TD.narrow(0, t, n).to(head.device(), head.scalar_type());
      const at::Tensor logits_TV = model.head(rows_TD, Step{}).to(at::kFloat);
      const at::Tensor next_T1 = batch.id_T.narrow(0, t + 1, n).to(head.device()).unsqueeze(1);
      sum += (at::logsumexp(logits_TV, {1}) - at::gather(logits_TV, 1, next_T1).squeeze(1)).sum().item<double>();
      count += n;
    }
    begin += length;
  }
  return {sum, count};
}

double perplexity_of(const Model& model, const std::vector<LayerBatch>& batches) {
  double sum = 0;
  int64_t count = 0;
  for (const LayerBatch& batch : batches) {
    const auto [loss, tokens] = losses_of(model, batch, model.final_norm(batch.x_TD));
    sum += loss, count += tokens;
  }
  return count > 0 ? std::exp(sum / static_cast<double>(count)) : 0;
}

Module& module_named(Model& model, const std::string& wanted) {
  Module* found = nullptr;
  model.visit_modules([&](const std::string& name, Module& module) {
    if (name == wanted) found = &module;
  });
  require(found, Fault::Bug, "the model has no ", wanted);
  return *found;
}

class Calibration {
 public:
  Calibration(Model& model, const CalibrationSpec& spec)
      : model_(model),
        spec_(spec),
        format_(*quant::calibrated_making(spec.method)),
        quantise_(*Registry<LayerQuantiser>::of().find(spec.method)),
        batches_(embedded(model, spec.blocks, spec.batch, spec.device)),
        before_(embedded(model, spec.judged, kJudgedAtOnce, spec.device)),
        after_(before_) {}

  CalibrationReport run(const std::function<void(int64_t, const CalibratedLayer&)>& keep) {
    const int64_t layers = model_.shape().layers;
    for (int64_t i = 0; i < layers; ++i) {
      spec_.progress(i, layers);
      keep(i, layer(i));
    }
    spec_.progress(layers, layers);
    if (model_.head_kind() != Head::Vocab) return report_;
    const Widened norm(module_named(model_, model_.norm_name()), spec_.device);
    report_.perplexity_before = perplexity_of(model_, before_);
    report_.perplexity = perplexity_of(model_, after_);
    return report_;
  }

 private:
  CalibratedLayer layer(int64_t i) {
    const std::string name = model_.layer_name(i);
    Module& module = module_named(model_, name);
    const Widened wide(module, spec_.device);
    advance(before_, i);
    LayerAtHand at_hand{model_, module, i, name, batches_, {}};
    const std::vector<NamedLinear> unmet = group_linears(at_hand);
    CalibratedLayer made;
    quantise_(at_hand, spec_, made);
    for (const NamedLinear& one : unmet) round(one, made);
    advance(batches_, i), advance(after_, i);
    return made;
  }

  void advance(std::vector<LayerBatch>& batches, int64_t i) const {
    for (LayerBatch& batch : batches) batch.x_TD = model_.layer(i, batch.x_TD, *batch.step);
  }

  bool fits(const Linear& linear) const { return format_.fits({linear.spec().out, linear.spec().in}, spec_.form); }

  // Those that share an input stand together, in the order in which they run. -> those that no row reaches
  std::vector<NamedLinear> group_linears(LayerAtHand& layer) {
    std::vector<NamedLinear> all;
    layer.module.visit_modules(
        [&](const std::string& name, Module& m) {
          auto* const linear = dynamic_cast<Linear*>(&m);
          if (linear && linear->weight().data.defined() && !spec_.skip(name)) all.push_back({name, linear});
        },
        layer.name);
    std::vector<at::Tensor> inputs;
    std::vector<std::string> run;
    {
      const LayerInputs watch(all, [&](const NamedLinear& one, const at::Tensor& x_TI) {
        if (std::find(run.begin(), run.end(), one.name) != run.end()) return;
        run.push_back(one.name);
        if (!fits(*one.layer)) return report_.plain.push_back(one.name);
        if (inputs.empty() || !inputs.back().is_same(x_TI)) layer.groups.emplace_back(), inputs.push_back(x_TI);
        layer.groups.back().push_back(one);
      });
      for (const LayerBatch& batch : batches_) {
        if (run.size() == all.size()) break;
        inputs.clear();
        model_.layer(layer.index, batch.x_TD, *batch.step);
      }
    }
    std::vector<NamedLinear> unmet;
    for (const NamedLinear& one : all) {
      if (std::find(run.begin(), run.end(), one.name) != run.end()) continue;
      if (fits(*one.layer))
        unmet.push_back(one), report_.unmet.push_back(one.name);
      else
        report_.plain.push_back(one.name);
    }
    if (!report_.groups.empty()) return unmet;
    for (const auto& group : layer.groups) {
      report_.groups.emplace_back();
      for (const NamedLinear& one : group) report_.groups.back().push_back(one.name.substr(layer.name.size() + 1));
    }
    return unmet;
  }

  // Nothing is known of its inputs.
  void round(const NamedLinear& one, CalibratedLayer& made) const {
    const at::Tensor host_OI = one.layer->weight().data.to(at::kCPU).contiguous();
    const quant::Shape shape{host_OI.size(0), host_OI.size(1)};
    const std::span<const float> weight(host_OI.data_ptr<float>(), static_cast<size_t>(host_OI.numel()));
    made.quantised[one.name] = format_.round(weight, shape, spec_.form);
  }

  Model& model_;
  const CalibrationSpec& spec_;
  const quant::CalibratedMaking& format_;
  const LayerQuantiser quantise_;
  std::vector<LayerBatch> batches_;         // through the quantised layers so far
  std::vector<LayerBatch> before_, after_;  // the judged rows, through the layers as they were and as they are now
  CalibrationReport report_;
};
}  // namespace

at::Tensor numbers_of_matrix(const quant::Matrix& matrix) {
  at::Tensor out_OI = at::empty({matrix.shape().rows, matrix.shape().columns}, at::kFloat);
  matrix.dequantise(0, matrix.shape().rows, out_OI.data_ptr<float>());
  return out_OI;
}

CalibrationReport calibrate(Model& model, const CalibrationSpec& spec,
                            const std::function<void(int64_t layer, const CalibratedLayer&)>& keep) {
  require(!spec.blocks.empty(), Fault::Bug, "calibration without rows");
  const c10::InferenceMode no_gradient;
  return Calibration(model, spec).run(keep);
}

}  // namespace apus
