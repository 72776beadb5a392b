// SPDX-License-Identifier: Apache-2.0
// NVIDIA GPUs as a device, on libtorch's own CUDA. Compiled only where libtorch has it (cmake/FindLibtorch.cmake).
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "device/device.h"
#include "devices/cuda/nccl.h"
#include "devices/cuda/nvml.h"
#include "devices/cuda/ops.h"
#include "devices/cuda/recording.h"
#include "tensor/compat.h"

namespace apus {

namespace {

// From the runtime itself: ATen's own call would want the headers of cuBLAS, cuSPARSE and cuSOLVER.
cudaDeviceProp properties(int index) {
  cudaDeviceProp p;
  C10_CUDA_CHECK(cudaGetDeviceProperties(&p, index));
  return p;
}

class CudaKind final : public DeviceKind {
 public:
  const char* name() const override { return "cuda"; }
  c10::DeviceType type() const override { return c10::kCUDA; }
  int priority() const override { return 10; }
  std::string visibility_env() const override { return "CUDA_VISIBLE_DEVICES"; }
  int64_t cache_block() const override { return 64; }
  bool available(std::string* why_not) override {
    // device_count() throws nothing: 0 when the driver is absent or too old.
    if (count() > 0) return true;
    *why_not =
        "libtorch sees no GPU: is the driver loaded (nvidia-smi), new enough for this CUDA, and CUDA_VISIBLE_DEVICES "
        "right?";
    return false;
  }
  void open(int index) override {
    try {
      at::globalContext().defaultGenerator(
          c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)));  // starts CUDA
      const c10::cuda::CUDAGuard here(static_cast<c10::DeviceIndex>(index));
      c10::cuda::device_synchronize();  // the context is made here rather than in the middle of a step
    } catch (const c10::Error& e) {
      const std::string what = e.what();
      fail(Fault::Device, "cuda:", index, " does not start: ", what.substr(0, what.find("\nException raised")));
    }
    cuda::register_ops();
  }
  int count() const override { return c10::cuda::device_count(); }
  std::string label(int index) const override { return properties(index).name; }
  Memory memory(int index) const override {
    const c10::cuda::CUDAGuard here(static_cast<c10::DeviceIndex>(index));
    size_t free = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(index));
    const auto& allocated = stats.allocated_bytes[0];  // 0: all pools together
    const auto& reserved = stats.reserved_bytes[0];
    // What the allocator holds and no tensor uses is free for us.
    return {static_cast<int64_t>(total), static_cast<int64_t>(free) + reserved.current - allocated.current,
            reserved.peak};
  }
  void reset_peak(int index) override {
    c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(index));
  }
  void release_cached() override { c10::cuda::CUDACachingAllocator::emptyCache(); }
  void synchronize(int index) const override {
    const c10::cuda::CUDAGuard here(static_cast<c10::DeviceIndex>(index));
    c10::cuda::device_synchronize();
  }
  Recorder recorder() const override { return cuda::record; }
  void seed(uint64_t seed) override {
    for (int i = 0; i < count(); ++i) {
      at::Generator generator =
          at::globalContext().defaultGenerator(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(i)));
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_current_seed(seed);
    }
  }
  bool supports(c10::ScalarType dtype) const override {
    if (dtype == at::kBFloat16) return count() == 0 || properties(0).major >= 8;
    return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kDouble;
  }
  std::string native_op(const std::string& op) const override { return cuda::vendor_name(op); }
  std::string library_version() const override {
    return str("libtorch ", torch_version(), ", CUDA ", CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10,
               ", driver ", cuda::nvml_driver_version());
  }
  std::unique_ptr<Comm> connect(const Rendezvous& rendezvous, std::vector<int> ranks) const override {
    return ranks.size() <= 1 ? lone_comm() : cuda::nccl_connect(rendezvous, ranks);
  }
  std::vector<Status> status() const override { return cuda::nvml_status(); }
  Topology topology() const override { return cuda::nvml_topology(); }
};

const RegisterDevice kRegistered{std::make_unique<CudaKind>()};

}  // namespace

}  // namespace apus
