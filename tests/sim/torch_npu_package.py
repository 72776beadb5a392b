# SPDX-License-Identifier: Apache-2.0
# pip's torch_npu, simulated: importing it loads the library beside it, whose symbols are then seen by nobody else, and
# adds torch.npu.
import ctypes
import os
import types

import torch

_library = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libtorch_npu.so"), mode=ctypes.RTLD_LOCAL)
_runtime = ctypes.CDLL("libascendcl.so")
_runtime.aclInit(None)
_peak = {}


def set_device(index):
    if _runtime.aclrtSetDevice(index):
        raise RuntimeError("SetDevice: invalid device id %d" % index)


torch.npu = types.SimpleNamespace(
    set_device=set_device,
    init=lambda: None,
    empty_cache=lambda: None,
    max_memory_reserved=lambda index: 0,
    reset_peak_memory_stats=lambda index: None,
    manual_seed_all=lambda seed: None,
)
