// SPDX-License-Identifier: Apache-2.0
// README.md of an adapter, with the front matter that hubs and PEFT read.
#pragma once

#include <string>

#include "checkpoint/adapter_config.h"

namespace apus {

std::string adapter_card(const LoraConfig& config);

}  // namespace apus
