// SPDX-License-Identifier: Apache-2.0
// Flags of training that scripts for other programs carry and that have no member here: each is noted as without
// effect, or refused with what to do instead.
#pragma once

#include "base/options.h"

namespace apus {

void foreign_training_fields(OptionTable& v);

}  // namespace apus
