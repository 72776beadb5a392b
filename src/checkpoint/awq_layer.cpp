// SPDX-License-Identifier: Apache-2.0
// AWQ for one decoder layer.
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/log.h"
#include "checkpoint/awq_search.h"
#include "checkpoint/calibrated_layer.h"
#include "nn/mixer.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "quant/awq.h"

namespace apus {

namespace {
constexpr int64_t kClipTokens = 512;  // whose products judge a bound
constexpr double kSameOutput = 1e-3;  // of the largest number: scaling there and back changes nothing
using Whole = std::function<at::Tensor(const at::Tensor& x_TD, const Step& s)>;

// What goes into the linear layers of a group, over all batches.
struct SeenInputs {
  at::Tensor magnitude_I;  // sum of |x|
  int64_t tokens = 0;
  std::vector<at::Tensor> some_TI;  // for the clips
  at::Tensor products_II;           // X'X, where one layer's own output is compared
  std::vector<at::Tensor> all_TI;   // by batch, where that of a whole module is
};

// A scale that an operation can take out of what it hands to a group.
struct AwqStep {
  size_t group;
  Module* before = nullptr;         // a norm; or
  Linear* linear_before = nullptr;  // a linear layer, whose rows they are
  std::string before_name;
  Whole whole;  // null: the output of the group's one layer is compared
};

class AwqLayer {
 public:
  AwqLayer(LayerAtHand& layer, int64_t group) : layer_(layer), group_(group) {
    layer.module.visit_modules([&](const std::string& name, Module& m) { modules_[name] = &m; }, layer.name);
  }

  void run(CalibratedLayer& made) {
    find_steps();
    watch();
    scale(made);
    for (size_t g = 0; g < layer_.groups.size(); ++g) {
      const at::Tensor x_TI = at::cat(seen_[g].some_TI, 0);
      for (const NamedLinear& one : layer_.groups[g]) round(one, x_TI, made);
    }
  }

 private:
  template <class M>
  M* find(const std::string& name) const {
    const auto it = modules_.find(layer_.name + "." + name);
    return it == modules_.end() ? nullptr : dynamic_cast<M*>(it->second);
  }

  // Of layers with a norm before the mixer and one before the feed-forward, and no other.
  bool has_two_norms() const {
    const auto norms = std::count_if(modules_.begin(), modules_.end(), [&](const auto& entry) {
      return dynamic_cast<Norm*>(entry.second) && entry.first.find('.', layer_.name.size() + 1) == std::string::npos;
    });
    return norms == 2 && find<Norm>("input_layernorm") && find<Norm>("post_attention_layernorm");
  }

  void find_steps() {
    const bool two_norms = has_two_norms();
    auto* const mixer = find<Mixer>("self_attn");
    auto* const feed_forward = find<Mlp>("mlp");
    for (size_t g = 0; g < layer_.groups.size(); ++g) {
      const std::string first = layer_.groups[g][0].name.substr(layer_.name.size() + 1);
      Linear& linear = *layer_.groups[g][0].layer;
      const auto from_norm = [&](const char* norm, Whole whole) {
        steps_.push_back({g, find<Norm>(norm), nullptr, layer_.name + "." + norm, std::move(whole)});
      };
      const auto from_linear = [&](const char* name) {
        Linear* const before = find<Linear>(name);
        if (before && before->spec().out == linear.spec().in)
          steps_.push_back({g, nullptr, before, layer_.name + "." + name, nullptr});
      };
      if (two_norms && mixer && (first == "self_attn.q_proj" || first == "self_attn.qkv_proj"))
        from_norm("input_layernorm", [mixer](const at::Tensor& x, const Step& s) { return (*mixer)(x, s); });
      if (two_norms && feed_forward && (first == "mlp.gate_proj" || first == "mlp.gate_up_proj" || first == "mlp.c_fc"))
        from_norm("post_attention_layernorm",
                  [feed_forward](const at::Tensor& x, const Step& s) { return (*feed_forward)(x, s); });
      // Where several queries share a value, its rows belong to several inputs.
      if (first == "self_attn.o_proj" && linear.spec().in == linear.spec().out) from_linear("self_attn.v_proj");
      if (first == "mlp.down_proj") from_linear("mlp.up_proj");
    }
  }

  const AwqStep* step_of(size_t group) const {
    const auto it = std::find_if(steps_.begin(), steps_.end(), [&](const AwqStep& s) { return s.group == group; });
    return it == steps_.end() ? nullptr : &*it;
  }

  void watch() {
    seen_.resize(layer_.groups.size());
    int64_t tokens = 0;
    for (const LayerBatch& batch : layer_.batches) tokens += batch.x_TD.size(0);
    const int64_t stride = std::max<int64_t>(1, tokens / kClipTokens);
    std::vector<NamedLinear> firsts;
    for (const auto& group : layer_.groups) firsts.push_back(group[0]);
    const LayerInputs watcher(firsts, [&](const NamedLinear& one, const at::Tensor& x_TI) {
      const auto at = std::find_if(firsts.begin(), firsts.end(), [&](const auto& f) { return f.layer == one.layer; });
      add(static_cast<size_t>(at - firsts.begin()), x_TI, stride);
    });
    for (const LayerBatch& batch : layer_.batches) layer_.model.layer(layer_.index, batch.x_TD, *batch.step);
  }

  void add(size_t group, const at::Tensor& x_TI, int64_t stride) {
    SeenInputs& seen = seen_[group];
    const int64_t width = x_TI.size(1), first = (stride - seen.tokens % stride) % stride;
    if (!seen.magnitude_I.defined()) seen.magnitude_I = at::zeros({width}, x_TI.options());
    seen.magnitude_I += x_TI.abs().sum(0);
    seen.tokens += x_TI.size(0);
    if (first < x_TI.size(0))
      seen.some_TI.push_back(
          x_TI.index_select(0, at::arange(first, x_TI.size(0), stride, x_TI.options().dtype(at::kLong))));
    const AwqStep* const step = step_of(group);
    if (!step) return;
    if (step->whole) return seen.all_TI.push_back(x_TI);
    if (!seen.products_II.defined()) seen.products_II = at::zeros({width, width}, x_TI.options());
    seen.products_II.addmm_(x_TI.t(), x_TI);
  }

  // All are sought with the layer as it was, then taken together.
  void scale(CalibratedLayer& made) {
    std::vector<at::Tensor> scales;
    for (const AwqStep& step : steps_) scales.push_back(search(step)), seen_[step.group].all_TI.clear();
    if (steps_.empty()) return;
    const LayerBatch& probe = layer_.batches[0];
    const at::Tensor was_TD = layer_.model.layer(layer_.index, probe.x_TD, *probe.step);
    std::map<std::string, at::Tensor> changed;
    for (size_t i = 0; i < steps_.size(); ++i) apply(steps_[i], scales[i], changed);
    const at::Tensor is_TD = layer_.model.layer(layer_.index, probe.x_TD, *probe.step);
    if ((is_TD - was_TD).abs().max().item<double>() > kSameOutput * was_TD.abs().max().item<double>()) {
      for (const auto& [param, value] : untouched_) param->data = value;
      return;
    }
    for (size_t i = 0; i < steps_.size(); ++i)
      for (at::Tensor& x_TI : seen_[steps_[i].group].some_TI) x_TI = x_TI / scales[i];
    for (const auto& [name, value] : changed) made.changed[name] = stored_numbers(value);
  }

  at::Tensor search(const AwqStep& step) {
    const auto& group = layer_.groups[step.group];
    const SeenInputs& seen = seen_[step.group];
    std::vector<at::Tensor> weights;
    for (const NamedLinear& one : group) weights.push_back(one.layer->weight().data);
    const auto put = [&](const std::vector<at::Tensor>& values) {
      for (size_t i = 0; i < group.size(); ++i) group[i].layer->weight().data = values[i];
    };
    std::vector<at::Tensor> was;
    if (step.whole)
      for (size_t b = 0; b < seen.all_TI.size(); ++b)
        was.push_back(step.whole(seen.all_TI[b], *layer_.batches[b].step));
    const auto loss = [&](const std::vector<at::Tensor>& changed) {
      if (!step.whole) {
        const at::Tensor difference_OI = changed[0] - weights[0];
        return (difference_OI.matmul(seen.products_II) * difference_OI).sum().item<double>();
      }
      put(changed);
      double sum = 0;
      for (size_t b = 0; b < was.size(); ++b)
        sum += (step.whole(seen.all_TI[b], *layer_.batches[b].step) - was[b]).square().sum().item<double>();
      put(weights);
      return sum;
    };
    return search_awq_scales(weights, seen.magnitude_I / static_cast<double>(seen.tokens), group_of(group[0]), loss,
                             group[0].name)
        .scale_I;
  }

  void set(Param& param, at::Tensor value) {
    untouched_.emplace(&param, param.data);
    param.data = std::move(value);
  }

  void apply(const AwqStep& step, const at::Tensor& scale_I, std::map<std::string, at::Tensor>& changed) {
    if (step.before)
      step.before->visit([&](const std::string& name, Param& p) { set(p, p.data / scale_I), changed[name] = p.data; },
                         step.before_name);
    if (step.linear_before) {
      Param& weight = step.linear_before->weight();
      set(weight, weight.data / scale_I.unsqueeze(1));
      if (Param* const bias = step.linear_before->bias())
        set(*bias, bias->data / scale_I), changed[step.before_name + ".bias"] = bias->data;
      if (!is_rounded(*step.linear_before)) changed[step.before_name + ".weight"] = weight.data;
    }
    for (const NamedLinear& one : layer_.groups[step.group])
      set(one.layer->weight(), one.layer->weight().data * scale_I);
  }

  bool is_rounded(const Linear& linear) const {
    for (const auto& group : layer_.groups)
      for (const NamedLinear& one : group)
        if (one.layer == &linear) return true;
    return false;
  }

  int64_t group_of(const NamedLinear& one) const { return group_ > 0 ? group_ : one.layer->spec().in; }

  void round(const NamedLinear& one, const at::Tensor& x_TI, CalibratedLayer& made) {
    at::Tensor weight_OI = one.layer->weight().data;
    const std::string last = one.name.substr(one.name.rfind('.') + 1);
    // Queries and keys meet in products, which a clip harms more.
    const bool meets = last.find("q_") != std::string::npos || last.find("k_") != std::string::npos ||
                       last.find("qkv") != std::string::npos;
    if (!meets) weight_OI = clipped(weight_OI, search_awq_clips(weight_OI, x_TI, group_of(one)));
    const at::Tensor host_OI = weight_OI.to(at::kCPU).contiguous();
    const quant::Shape shape{host_OI.size(0), host_OI.size(1)};
    const auto integers =
        quant::round_to_awq({host_OI.data_ptr<float>(), static_cast<size_t>(host_OI.numel())}, shape, group_of(one));
    quant::Pieces pieces = quant::pack_awq(integers, shape);
    one.layer->put_weight(
        numbers_of_matrix(*quant::open_awq({one.name, pieces}, shape, group_of(one))).to(weight_OI.device()));
    made.quantised[one.name] = std::move(pieces);
  }

  static StoredTensor stored_numbers(const at::Tensor& value) {
    const at::Tensor host = value.to(at::kCPU, at::kFloat).contiguous();
    std::vector<float> numbers(host.data_ptr<float>(), host.data_ptr<float>() + host.numel());
    return stored(DiskType::F32, host.sizes().vec(), std::move(numbers));
  }

  LayerAtHand& layer_;
  const int64_t group_;
  std::map<std::string, Module*> modules_;
  std::vector<AwqStep> steps_;
  std::vector<SeenInputs> seen_;            // by group
  std::map<Param*, at::Tensor> untouched_;  // what the parameters were before any scale
};

// Scales what one operation hands to linear layers where the family allows it, clips, rounds.
const RegisterLayerQuantiser awq("awq", [](LayerAtHand& layer, const CalibrationSpec& spec, CalibratedLayer& made) {
  AwqLayer(layer, spec.form.group).run(made);
});
}  // namespace

}  // namespace apus
