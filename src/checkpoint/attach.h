// SPDX-License-Identifier: Apache-2.0
// Where an adapter's changes are: beside which layers of a model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/adapter_file.h"
#include "models/model.h"
#include "nn/trained_delta.h"

namespace apus {

void each_adaptable(Module& model, const std::function<void(const std::string& name, Adaptable&)>& f);
using DeltaOf = std::function<void(const std::string& name, Adaptable&, TrainedDelta&)>;
void each_delta(Module& model, const std::string& adapter, const DeltaOf& f);

// Attaches changes without values wherever the config says; the layers' names. The identity of a layer for dropout is
// its place in the order. `file`: of the adapter, if there is one, for what all layers share.
std::vector<std::string> attach_changes(Model& model, const LoraConfig& config, const std::string& name,
                                        const AdapterFile* file = nullptr);

}  // namespace apus
