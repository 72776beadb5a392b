// SPDX-License-Identifier: Apache-2.0
#include "devices/ascend/backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest.h"
#include "devices/ascend/libraries.h"

namespace apus::ascend {
namespace fs = std::filesystem;

namespace {

constexpr const char* kLibrary = "libtorch_npu.so";
constexpr const char* kInit = "_ZN9torch_npu8init_npuEa";  // torch_npu::init_npu(c10::DeviceIndex)

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

LibraryPlace find_library() {
  LibraryPlace place;
  std::error_code code;
  if (const std::string named = environment("APUS_TORCH_NPU"); !named.empty()) {
    for (const fs::path& file : {fs::path(named), fs::path(named) / kLibrary, fs::path(named) / "lib" / kLibrary})
      if (fs::is_regular_file(file, code)) return {file, ""};
    place.notes += str("\n  APUS_TORCH_NPU is ", named, ", and no ", kLibrary, " is there");
  }
  std::istringstream folders(environment("LD_LIBRARY_PATH") + ":/usr/local/libtorch_npu/lib");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && fs::exists(fs::path(folder) / kLibrary, code))
      return {fs::path(folder) / kLibrary, place.notes};
  place.notes +=
      str("\n  no self-built ", kLibrary, " in APUS_TORCH_NPU, LD_LIBRARY_PATH or /usr/local/libtorch_npu/lib");
  return place;
}

PipPlace find_python() {
  std::string executable = environment("APUS_PYTHON"), why;
  if (executable.empty()) executable = "python3";
  PipPlace place;
  if (!ask_python(executable, place.python, &why))
    place.notes = str("\n  no Python: ", why, " (APUS_PYTHON names one)");
  else if (place.python.torch_npu.empty())
    place.notes = str("\n  the Python '", executable,
                      "' has no torch_npu (pip install torch_npu; APUS_PYTHON names another Python)");
  return place;
}

// pip's torch_npu works with the very libtorch that Python's torch loads:
// a second one in the process would not know it.
void check_same_libtorch(const PythonPlace& place) {
  const std::string mine = file_of(reinterpret_cast<const void*>(&c10::impl::device_guard_impl_registry));
  const fs::path theirs = fs::path(place.torch) / "lib" / "libc10.so";
  std::error_code code;
  require(fs::equivalent(mine, theirs, code), Fault::Device, "Apus was built with the libtorch of ", mine,
          ", and torch_npu of '", place.executable, "' needs that of ", theirs.string(),
          ": build again with -DTorch_DIR=", place.torch, "/share/cmake/Torch");
}

// Importing makes the back end known; init() starts the runtime where an interpreter is at hand. A torch with CUDA
// refuses a second accelerator while it is imported, hence the stand-in.
constexpr const char* kImport = R"(
os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0'
import torch
asked = getattr(torch._C, '_get_accelerator', None)
if asked is not None and getattr(torch.version, 'cuda', None):
    torch._C._get_accelerator = lambda *rest: torch.device('cpu')
try:
    import torch_npu
finally:
    if asked is not None: torch._C._get_accelerator = asked
torch.npu.set_device(DEVICE)
torch.npu.init()
)";

bool open_self_built(const std::string& file, int index, std::string* notes) {
  std::string why;
  void* library = open_library(file, &why);
  if (!library) {
    *notes += str("\n  ", file, " does not load: ", why,
                  why.find("Py") == std::string::npos ? "" : " (it is pip's build: it needs Python)");
    return false;
  }
  void (*init)(c10::DeviceIndex) = nullptr;
  if (!look_up(library, kInit, init)) {
    *notes += str("\n  ", file, " has no torch_npu::init_npu: it is pip's build and needs Python");
    return false;
  }
  try {
    init(static_cast<c10::DeviceIndex>(index));
  } catch (const std::exception& e) {
    const std::string what = e.what();
    fail(Fault::Device, file, " does not start device ", index, ": ", what.substr(0, what.find("\nException raised")));
  }
  return true;
}

void check_round_trip(const Backend& backend, int index) {
  const auto type = c10::DeviceType::PrivateUse1;
  require(c10::impl::hasDeviceGuardImpl(type), Fault::Device, backend.file,
          " is loaded, and has not registered its device with libtorch");
  const auto* guard = c10::impl::getDeviceGuardImpl(type);
  require(guard->deviceCount() > 0, Fault::Device, backend.file,
          " sees no device: is ASCEND_RT_VISIBLE_DEVICES right, and are /dev/davinci* there?");
  const at::Tensor host = at::ones({2}),
                   there =
                       at::empty({2}, host.options().device(c10::Device(type, static_cast<c10::DeviceIndex>(index))));
  there.copy_(host);
  const float sum = there.add(there).sum().item<float>();
  require(sum == 4, Fault::Device, "the first computation on device ", index, " is wrong: 1 + 1 + 1 + 1 gave ", sum);
}

void open_pip(const PipPlace& place, int index, const std::string& tried) {
  require(!place.python.torch_npu.empty(), Fault::Device, "torch_npu cannot be opened. Tried:", tried, place.notes);
  check_same_libtorch(place.python);
  start_python(place.python);
  std::string code = kImport;
  code.replace(code.find("DEVICE)"), 6, std::to_string(index));
  try {
    run_python(code);
  } catch (const Error& e) {
    fail(Fault::Device, "torch_npu of '", place.python.executable, "' does not start: ", e.what(),
         "\nTried before:", tried);
  }
}

Backend make_backend(int index) {
  std::string tried = library_place().notes;
  Backend b;
  if (!library_place().file.empty() && open_self_built(library_place().file, index, &tried)) {
    b.file = library_place().file;
  } else {
    open_pip(pip_place(), index, tried);
    b.file = pip_place().python.torch_npu + "/lib/" + kLibrary;
    b.python = true;
  }
  // In its own handle: Python loads a package's libraries without showing their symbols to others.
  std::vector<std::string> own;
  void* library = loaded_library(b.file);
  const auto look = [&](const char* symbol, const char* plain, auto& function) {
    if (library && look_up(library, symbol, function)) own.push_back(plain);
  };
  look("_ZN5torch3npu11synchronizeEl", "synchronize", b.synchronize);
  look("_ZN7c10_npu20npuSynchronizeDeviceEb", "npuSynchronizeDevice", b.synchronize_device);
  look("_ZN6at_npu6detail22getDefaultNPUGeneratorEa", "getDefaultNPUGenerator", b.generator);
  check_round_trip(b, index);
  if (!b.synchronize && !b.synchronize_device)
    log_warning(b.file,
                " shows no function that waits for its queue of launches: times measured on the device are wrong");
  log_debug("torch_npu: ", b.file, b.python ? str(" in ", pip_place().python.executable) : "",
            "; own functions: ", join(own));
  return b;
}

}  // namespace

const LibraryPlace& library_place() {
  static const LibraryPlace place = find_library();
  return place;
}

const PipPlace& pip_place() {
  static const PipPlace place = find_python();
  return place;
}

const Backend& open_backend(int index) {
  static const Backend backend = make_backend(index);
  return backend;
}

}  // namespace apus::ascend
