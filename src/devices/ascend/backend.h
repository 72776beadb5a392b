// SPDX-License-Identifier: Apache-2.0
// torch_npu, the vendor's back end of the tensor library, found and opened at run time. It comes as two libraries of
// the same name: the self-built one starts by a C++ call (init_npu); pip's lacks that call and needs a Python
// interpreter in the process. Nothing is compiled against either.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "devices/ascend/python.h"

namespace apus::ascend {

// What could be opened, without opening it; looked for once, at the first question.
struct LibraryPlace {
  std::string file;   // a libtorch_npu.so outside Python; empty: none
  std::string notes;  // the places where it was looked for in vain
};
const LibraryPlace& library_place();
struct PipPlace {
  PythonPlace python;  // torch_npu empty: none
  std::string notes;
};
const PipPlace& pip_place();

// The functions of torch_npu behind their mangled names; null where this build lacks them.
struct Backend {
  std::string file;
  bool python = false;
  void (*synchronize)(int64_t device) = nullptr;
  int (*synchronize_device)(bool check) = nullptr;    // of the current device
  const void* (*generator)(int8_t device) = nullptr;  // const at::Generator&, the default one
};

// Opens it once for the process, `index` being the first device it touches.
// Throws Fault::Device with all that was tried.
const Backend& open_backend(int index);

}  // namespace apus::ascend
