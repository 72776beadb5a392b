// SPDX-License-Identifier: Apache-2.0
// pytorch_model.bin: a zip archive with a pickle that says which tensors there are, and their numbers beside it. The
// pickle is read as data: what would run code is refused. No tensor library here.
#pragma once

#include "tensor/safetensors_header.h"

namespace apus {

bool is_torch_file(const std::byte* data, int64_t size);
// Where the tensors of a state dict lie in the file; those of a dict of dicts as `group.name`, with whole numbers
// beside them in the metadata. Fault::Model for other pickles, with what is wrong.
SafetensorsHeader parse_torch_file(const std::byte* data, int64_t size, const std::string& where);

}  // namespace apus
