// SPDX-License-Identifier: Apache-2.0
// apus infer --infer_backend client: the rows of a file go to any OpenAI-compatible server.
#pragma once

#include "cli/infer.h"

namespace apus {

int infer_client(const InferOptions& options);

// "http://host:8000", "http://host:8000/v1/" -> "http://host:8000/v1". Fault::Usage for what is no URL.
std::string api_root(const std::string& base_url);

}  // namespace apus
