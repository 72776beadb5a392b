// SPDX-License-Identifier: Apache-2.0
// Datasets of hubs for dataset_files().
#pragma once

#include <string>

#include "data/source/dataset_ref.h"

namespace apus {

// `use_hf`: the hub of references without hf:: or ms::. `token` empty: the environment's.
// `revision` empty: the main branch.
FetchDataset hub_datasets(bool use_hf, const std::string& token = "", const std::string& revision = "");

}  // namespace apus
