// SPDX-License-Identifier: Apache-2.0
// Tensors of GGUF files.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "gguf/model.h"
#include "tensor/disk_type.h"

namespace apus {

DiskType gguf_disk_type(const GgufSlice& slice);  // of quantised ones, what their numbers are: F32

// Plain ones are the very pages of the file, which stays open; quantised ones are made whole as `wide`.
at::Tensor gguf_tensor(const std::shared_ptr<const GgufModel>& model, const GgufSlice& slice, at::ScalarType wide);

}  // namespace apus
