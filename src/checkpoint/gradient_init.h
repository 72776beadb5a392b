// SPDX-License-Identifier: Apache-2.0
// LoRA-GA: factors begin with singular vectors of the weight's gradient, so that the first update is near to that of
// the whole weight. As with PiSSA their product is taken out of the weight first.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "checkpoint/adapter.h"

namespace apus {

struct LoraFactors {
  at::Tensor a, b;  // [r, in], [out, r]
};
// `scale`: LoRA's own, alpha / r. Fault::Usage where the gradient [out, in] has fewer than 2 r vectors.
LoraFactors factors_of_gradient(const at::Tensor& gradient, const at::Tensor& weight, int64_t rank, double scale,
                                const GradientFactors& how, uint64_t seed);

// The layers with factors, and their weights: whose gradients are asked for.
void each_lora_layer(Model& model, const Adapter& adapter,
                     const std::function<void(const std::string& module, Adaptable& layer, Lora& lora)>& f);
// Fault::Usage where weights cannot be changed.
void begin_by_gradients(Model& model, Adapter& adapter, const std::map<std::string, at::Tensor>& gradients,
                        const GradientFactors& how, uint64_t seed);
// The factors that a checkpoint of such an adapter says were taken out at the start, before restore_adapter().
void take_out_again(Model& model, Adapter& adapter, const std::filesystem::path& dir);

}  // namespace apus
