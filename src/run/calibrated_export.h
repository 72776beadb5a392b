// SPDX-License-Identifier: Apache-2.0
// apus export --quant_method of a format that calibrates: weights quantised with the help of rows.
#pragma once

#include "cli/export.h"

namespace apus {

void run_calibrated_export(const ExportOptions& options);

}  // namespace apus
