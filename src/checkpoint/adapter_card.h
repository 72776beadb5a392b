// SPDX-License-Identifier: Apache-2.0
// README.md of an adapter, with the front matter that hubs and PEFT read.
#pragma once

#include <string>

#include "base/json.h"

namespace apus {

std::string adapter_card(const Json& adapter_config);  // of the adapter_config.json beside it

}  // namespace apus
