// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/kernel.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "devices/cuda/nvrtc.h"

namespace apus::cuda {

namespace {

// The driver's functions that load and start kernels.
struct Driver {
  int (*load)(void**, const void*) = nullptr;
  int (*find)(void**, void*, const char*) = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**) = nullptr;
  int (*error_text)(int, const char**) = nullptr;
};

const Driver& driver() {
  static const Driver table = [] {
    Driver d;
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
    const auto get = [&](const char* symbol, auto& function) {
      if (library) function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, symbol));
    };
    get("cuModuleLoadData", d.load), get("cuModuleGetFunction", d.find), get("cuLaunchKernel", d.launch);
    get("cuGetErrorString", d.error_text);
    return d;
  }();
  return table;
}

std::string text_of(int error) {
  const char* text = nullptr;
  return driver().error_text && driver().error_text(error, &text) == 0 && text ? text : str("error ", error);
}

std::string chip_of(int device) {
  int major = 0, minor = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return str("sm_", major, minor);
}

// Empty: nothing can be kept.
std::filesystem::path cache_folder() {
  const auto env = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string cache = env("XDG_CACHE_HOME"); !cache.empty())
    return std::filesystem::path(cache) / "apus" / "kernels";
  const std::string home = env("HOME");
  return home.empty() ? std::filesystem::path() : std::filesystem::path(home) / ".cache" / "apus" / "kernels";
}

// A kept kernel is its symbol, a line break, and the code.
Compiled kept_or_compiled(const std::string& file, const std::string& name, const std::string& chip) {
  const std::filesystem::path folder = cache_folder(),
                              path = folder /
                                     (hex_digest(str(kernel_source(file), name, chip, nvrtc_version()), 16) + ".cubin");
  std::error_code error;
  if (!folder.empty() && std::filesystem::exists(path, error)) {
    const std::string text = read_file(path);
    if (const size_t end = text.find('\n'); end != std::string::npos)
      return {text.substr(end + 1), text.substr(0, end), ""};
  }
  Compiled made = compile_kernel(file, name, chip);
  log_debug("compiled the kernel ", file, "/", name, " for ", chip);
  if (folder.empty()) return made;
  try {
    std::filesystem::create_directories(folder);
    write_file_atomic(path, str(made.symbol, "\n", made.code));
  } catch (const std::exception& e) {
    log_debug("the kernel is not kept: ", e.what());
  }
  return made;
}

}  // namespace

void* Kernel::function(int device) const {
  std::atomic<void*>& slot = loaded_.at(static_cast<size_t>(device));
  if (void* const known = slot.load(std::memory_order_acquire)) return known;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (void* const known = slot.load(std::memory_order_acquire)) return known;
  const Compiled made = kept_or_compiled(file_, name_, chip_of(device));
  void *loaded = nullptr, *found = nullptr;
  int error = driver().load(&loaded, made.code.data());  // for the life of the process
  if (error == 0) error = driver().find(&found, loaded, made.symbol.c_str());
  require(error == 0, Fault::Device, "the kernel ", file_, "/", name_, " does not load: ", text_of(error),
          ". APUS_REFERENCE_OPS=all does without kernels of ours");
  slot.store(found, std::memory_order_release);
  return found;
}

namespace {
// The driver's functions work in the context of the calling thread, which a thread that nobody has used has not.
int device_of_thread() {
  const int device = c10::cuda::current_device();
  thread_local bool bound = false;
  if (!bound) {
    C10_CUDA_CHECK(cudaSetDevice(device));
    C10_CUDA_CHECK(cudaFree(nullptr));  // before CUDA 12 it is this that makes the context
    bound = true;
  }
  return device;
}
}  // namespace

void Kernel::launch(Extent grid, Extent block, void** arguments) const {
  const auto n = [](int64_t x) { return static_cast<unsigned>(x); };
  const int device = device_of_thread();
  const int error = driver().launch(function(device), n(grid.x), n(grid.y), n(grid.z), n(block.x), n(block.y),
                                    n(block.z), 0, c10::cuda::getCurrentCUDAStream().stream(), arguments, nullptr);
  require(error == 0, Fault::Device, "the kernel ", file_, "/", name_, " does not start (grid ", grid.x, " x ", grid.y,
          " x ", grid.z, ", block ", block.x, " x ", block.y, "): ", text_of(error));
}

std::string why_no_kernels() {
  if (const std::string why = why_no_nvrtc(); !why.empty()) return why;
  if (!driver().load || !driver().find || !driver().launch) return "libcuda.so.1 lacks functions";
  int major = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, c10::cuda::current_device()));
  return major >= 8 ? "" : "the GPU is older than Ampere";
}

}  // namespace apus::cuda
