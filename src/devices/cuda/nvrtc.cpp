// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/nvrtc.h"

#include <dlfcn.h>

#include <type_traits>
#include <vector>

#include "base/assets.h"
#include "base/error.h"

namespace apus::cuda {

namespace {

using Program = void*;

struct Nvrtc {
  int (*version)(int*, int*) = nullptr;
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*add_name)(Program, const char*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*lowered_name)(Program, const char*, const char**) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*cubin_size)(Program, size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  const char* (*error_text)(int) = nullptr;
  std::string why_not;
};

// libtorch's own NVRTC is loaded already, or lies where libtorch's libraries look; else the system's.
void* open_library() {
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"})
    if (void* library = ::dlopen(name, RTLD_NOW)) return library;
  // Its rpath leads to the NVRTC of pip's packages, and the library stays loaded with it.
  if (::dlopen("libcaffe2_nvrtc.so", RTLD_NOW))
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"})
      if (void* library = ::dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return library;
  return nullptr;
}

Nvrtc load() {
  Nvrtc n;
  void* const library = open_library();
  if (!library) {
    n.why_not = "libnvrtc.so is not found (pip install nvidia-cuda-nvrtc of libtorch's CUDA version)";
    return n;
  }
  const auto find = [&](const char* symbol, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, symbol));
    if (!function) n.why_not = str("libnvrtc.so has no ", symbol, ": CUDA 11.2 or later is needed");
  };
  find("nvrtcVersion", n.version), find("nvrtcCreateProgram", n.create), find("nvrtcDestroyProgram", n.destroy);
  find("nvrtcAddNameExpression", n.add_name), find("nvrtcCompileProgram", n.compile);
  find("nvrtcGetLoweredName", n.lowered_name), find("nvrtcGetProgramLogSize", n.log_size);
  find("nvrtcGetProgramLog", n.log), find("nvrtcGetCUBINSize", n.cubin_size), find("nvrtcGetCUBIN", n.cubin);
  find("nvrtcGetErrorString", n.error_text);
  return n;
}

const Nvrtc& nvrtc() {
  static const Nvrtc table = load();
  return table;
}

// Of one compilation.
class Unit {
 public:
  Unit(const std::string& text, const std::string& file) {
    check(nvrtc().create(&program_, text.c_str(), (file + ".cu").c_str(), 0, nullptr, nullptr));
  }
  ~Unit() { nvrtc().destroy(&program_); }
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  Compiled compile(const std::string& file, const std::string& name, const std::string& chip) {
    check(nvrtc().add_name(program_, name.c_str()));
    const std::string architecture = "--gpu-architecture=" + chip;
    const std::vector<const char*> options = {architecture.c_str(), "-std=c++17", "--ptxas-options=-v"};
    const int result = nvrtc().compile(program_, static_cast<int>(options.size()), options.data());
    Compiled made;
    made.log = text(nvrtc().log_size, nvrtc().log);
    require(result == 0, Fault::Device, "the kernel ", file, "/", name, " does not compile for ", chip, " (",
            nvrtc().error_text(result), "):\n", made.log);
    const char* symbol = nullptr;
    check(nvrtc().lowered_name(program_, name.c_str(), &symbol));
    made.symbol = symbol;
    made.code = text(nvrtc().cubin_size, nvrtc().cubin);
    return made;
  }

 private:
  static void check(int result) { require(result == 0, Fault::Device, "NVRTC: ", nvrtc().error_text(result)); }
  std::string text(int (*size)(Program, size_t*), int (*get)(Program, char*)) const {
    size_t count = 0;
    check(size(program_, &count));
    std::string out(count, '\0');
    check(get(program_, out.data()));
    return out;
  }
  Program program_ = nullptr;
};

}  // namespace

std::string why_no_nvrtc() { return nvrtc().why_not; }

std::string nvrtc_version() {
  int major = 0, minor = 0;
  if (!nvrtc().why_not.empty() || nvrtc().version(&major, &minor) != 0) return "";
  return str(major, ".", minor);
}

std::string kernel_source(const std::string& file) {
  return str(asset("kernels/prelude.cuh"), "\n", asset("kernels/" + file + ".cu"));
}

Compiled compile_kernel(const std::string& file, const std::string& name, const std::string& chip) {
  require(nvrtc().why_not.empty(), Fault::Device, nvrtc().why_not);
  return Unit(kernel_source(file), file).compile(file, name, chip);
}

}  // namespace apus::cuda
