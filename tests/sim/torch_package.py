# SPDX-License-Identifier: Apache-2.0
# What the simulated torch_npu needs of Python's torch.
import types

version = types.SimpleNamespace(cuda=None)
_C = types.SimpleNamespace()
