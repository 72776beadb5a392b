// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/attach.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/make_delta.h"
#include "dist/mesh.h"
#include "nn/lora.h"
#include "nn/parts.h"

namespace apus {

void each_adaptable(Module& model, const std::function<void(const std::string&, Adaptable&)>& f) {
  model.visit_modules([&](const std::string& name, Module& module) {
    if (auto* layer = dynamic_cast<Adaptable*>(&module)) f(name, *layer);
  });
}

void each_delta(Module& model, const std::string& adapter, const DeltaOf& f) {
  each_adaptable(model, [&](const std::string& name, Adaptable& layer) {
    const auto found = layer.adapters().find(adapter);
    if (found == layer.adapters().end()) return;
    if (auto* delta = dynamic_cast<TrainedDelta*>(found->second)) f(name, layer, *delta);
  });
}

namespace {

// Factors are cut as the weight that they change: A [r, in] along its inputs, everything else along its outputs. They
// are where it is.
void cut_like(Lora& lora, Adaptable& layer) {
  for (const Cut& of_weight : layer.weight().cuts) {
    if (of_weight.axis == Axis::DpShard) continue;  // every parameter has that cut of its own
    if (leaves_whole(of_weight)) {
      lora.visit([&](const std::string&, Param& p) { p.cuts.insert(p.cuts.end() - 1, of_weight); });
      continue;
    }
    const bool stage = of_weight.axis == Axis::Pp, outputs = stage || (of_weight.dim == 0) != layer.sides().looks_up;
    Cut cut = of_weight;
    cut.dim = outputs ? 0 : 1;
    std::vector<Param*> factors =
        outputs ? std::vector<Param*>{&lora.b(), lora.magnitude(), lora.shift()} : std::vector<Param*>{&lora.a()};
    if (stage) factors.push_back(&lora.a());
    for (Param* p : factors)
      if (p) p->cuts.insert(p->cuts.end() - 1, cut);
  }
}

// Ranks that hold parts of a weight hold parts of its change, which only LoRA's factors can be cut into.
void place_beside(TrainedDelta& delta, Adaptable& layer, const std::string& module, const Model& model,
                  const LoraConfig& config) {
  if (auto* lora = dynamic_cast<Lora*>(&delta)) return cut_like(*lora, layer);
  for (const Cut& cut : layer.weight().cuts)
    require(cut.axis == Axis::DpShard || !model.mesh() || model.mesh()->size(cut.axis) == 1, Fault::Usage,
            adapter_title(config), " on ", module,
            ", which ranks share out, is not available: train with --tuner_type lora, or without "
            "--tensor_model_parallel_size, --expert_model_parallel_size and --pipeline_model_parallel_size");
}

// Whether ranks share out the inputs of a layer, and sum what each multiplies: the bias is added behind that.
bool sums_over_ranks(Adaptable& layer, const Model& model) {
  const MeshView* const mesh = model.mesh();
  const std::vector<Cut>& cuts = layer.weight().cuts;
  return mesh && !layer.sides().looks_up && std::any_of(cuts.begin(), cuts.end(), [&](const Cut& cut) {
           return cut.dim == 1 && cut.axis != Axis::DpShard && mesh->size(cut.axis) > 1;
         });
}

bool is_meant(const LoraConfig& config, const Model& model, const std::string& module) {
  if (config.kind == "prompt_tuning") return module == model.embed_name();
  return config.targets(module) && !config.saves(module);
}

// The most inputs and outputs of any layer that the config means.
Adaptable::Sides widest_layer(Model& model, const LoraConfig& config) {
  Adaptable::Sides widest{0, 0};
  each_adaptable(model, [&](const std::string& module, Adaptable& layer) {
    if (!is_meant(config, model, module)) return;
    widest.in = std::max(widest.in, layer.sides().in), widest.out = std::max(widest.out, layer.sides().out);
  });
  return widest;
}

}  // namespace

std::vector<std::string> attach_changes(Model& model, const LoraConfig& config, const std::string& name,
                                        const AdapterFile* file) {
  const std::string unfit = config.kind == "prompt_tuning" ? model.takes_no_prompt() : "";
  require(unfit.empty(), Fault::Usage, "a trained prompt cannot stand before texts of this family: ", unfit,
          ". Train with --tuner_type lora");
  std::vector<std::string> attached;
  const auto shared = shared_matrices(config, widest_layer(model, config), file);
  uint64_t id = 0;
  each_adaptable(model, [&](const std::string& module, Adaptable& layer) {
    const auto sides = layer.sides();
    if (!sides.looks_up) ++id;
    if (!is_meant(config, model, module)) return;
    const bool sums = sums_over_ranks(layer, model);
    require(!config.lora_bias || !sums, Fault::Usage, "lora_bias on ", module,
            " is not available with --tensor_model_parallel_size: each of the ranks that sum its output would add it");
    auto delta = make_delta(config, {.module = module,
                                     .sides = sides,
                                     .id = sides.looks_up ? 0 : id,
                                     .bias = sums ? nullptr : layer.bias(),
                                     .shared = shared});
    place_beside(*delta, layer, module, model, config);
    layer.attach(name, std::move(delta));
    attached.push_back(module);
  });
  return attached;
}

}  // namespace apus
