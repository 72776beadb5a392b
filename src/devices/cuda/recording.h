// SPDX-License-Identifier: Apache-2.0
// Work as a CUDA graph.
#pragma once

#include <functional>
#include <memory>

#include "device/device.h"

namespace apus::cuda {

std::unique_ptr<Recording> record(const std::function<void()>& work, const Recording* sharing);

}  // namespace apus::cuda
