// SPDX-License-Identifier: Apache-2.0
// GPTQ for one decoder layer.
#include "checkpoint/calibrated_layer.h"
#include "checkpoint/gptq_search.h"

namespace apus {

namespace {
at::Tensor hessian_of(const LayerAtHand& layer, const NamedLinear& one) {
  Hessian hessian;
  const LayerBatch* batch = nullptr;
  const LayerInputs watch({one}, [&](const NamedLinear&, const at::Tensor& x_TI) {
    hessian.add(x_TI, static_cast<int64_t>(batch->step->length_q.size()));
  });
  for (const LayerBatch& each : layer.batches) {
    batch = &each;
    layer.model.layer(layer.index, each.x_TD, *each.step);
  }
  return hessian.matrix();
}

// Each group sees the inputs that those before it give once they are quantised.
void by_gptq(LayerAtHand& layer, const CalibrationSpec& spec, CalibratedLayer& made) {
  for (const auto& group : layer.groups) {
    const at::Tensor hessian_II = hessian_of(layer, group[0]).to(at::kCPU);
    for (const NamedLinear& one : group) {
      const at::Tensor weight_OI = one.layer->weight().data.to(at::kCPU);
      const quant::Shape shape{weight_OI.size(0), weight_OI.size(1)};
      const quant::Integers integers =
          round_by_gptq(weight_OI, hessian_II, {.form = spec.form, .by_importance = spec.by_importance}, one.name);
      quant::Pieces pieces = quant::pack_gptq(integers, shape, spec.form);
      one.layer->put_weight(numbers_of_matrix(*quant::open_gptq({one.name, pieces}, shape, spec.form)).to(spec.device));
      made.quantised[one.name] = std::move(pieces);
    }
  }
}

const RegisterLayerQuantiser gptq("gptq", by_gptq), gptq_v2("gptq_v2", by_gptq);
}  // namespace

}  // namespace apus
