// SPDX-License-Identifier: Apache-2.0
// Compiled in place of devices/cuda/ where libtorch has no CUDA (cmake/Layers.cmake): who asks for a GPU is told how to
// get one that has.
#include "base/error.h"
#include "device/device.h"
#include "tensor/compat.h"

namespace apus {
namespace {

const MissingDevice cuda("cuda", str("this apus was built with libtorch ", torch_version(),
                                     " for processors, so GPUs of NVIDIA are not in it. To have them, build it with a "
                                     "torch that has CUDA: `pip install torch` for the python3 on PATH, then `cmake "
                                     "--preset release && cmake --build build`; or `scripts/build-wheel PYTHON`, which "
                                     "makes a wheel for pip (docs/dependencies.md)"));

}  // namespace
}  // namespace apus
