// SPDX-License-Identifier: Apache-2.0
// An Eagle-3 head from its folder, as its trainers write it (config.json and safetensors).
#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <memory>

#include "models/guess_head.h"

namespace apus {

// Fault::Model where it is none, or none for a model of this shape.
std::shared_ptr<const GuessHead> load_eagle(const std::filesystem::path& dir, const ModelShape& model,
                                            at::ScalarType dtype, c10::Device device);

}  // namespace apus
