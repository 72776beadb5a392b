// SPDX-License-Identifier: Apache-2.0
// A libtorch_npu.so without hardware: the PrivateUse1 backend over the simulated libascendcl. Its memory is host
// memory, so every operator without a kernel of its own runs on a CPU tensor that shares the storage. What it is strict
// about is what real devices are strict about:
// no f64, no mixing with CPU tensors, a memory limit with the vendor's message.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#if __has_include(<ATen/detail/PrivateUse1HooksInterface.h>)
#include <ATen/detail/PrivateUse1HooksInterface.h>
#define SIM_HAS_HOOKS
#endif

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "ascendcl.h"
#include "sim_ops.h"
#include "sim_waits.h"
#include "tensor/compat.h"

namespace {

using apus::kNone, apus::Optional;

constexpr auto kSim = c10::DeviceType::PrivateUse1;

sim::Waits waits;
std::atomic<int64_t> asked_for{0};  // operators so far

bool tells_the_host(const std::string& name) {
  for (const char* one :
       {"nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount", "equal"})
    if (name == std::string("aten::") + one) return true;
  return name == "aten::repeat_interleave";
}

// ---- memory

[[noreturn]] void out_of_memory(size_t wanted, int device) {
  size_t free = 0, total = 0;
  aclrtGetMemInfo(1, &free, &total);
  const auto size = [](size_t bytes) {  // as the library writes sizes
    const double mib = static_cast<double>(bytes) / (1 << 20);
    char out[32];
    std::snprintf(out, sizeof out, "%.2f %s", mib < 1024 ? mib : mib / 1024, mib < 1024 ? "MiB" : "GiB");
    return std::string(out);
  };
  std::ostringstream text;
  text << "NPU out of memory. Tried to allocate " << size(wanted) << " (NPU " << device << "; " << size(total)
       << " total capacity; " << size(total - free) << " already allocated; " << size(total - free)
       << " current active; " << size(free) << " free; " << size(total - free) << " reserved in total by PyTorch)";
  throw c10::Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text.str());
}

// Which device this thread works on; the runtime learns it when memory is asked for.
thread_local int32_t wanted = -1;

int32_t current_device() {
  int32_t device = 0;
  return wanted >= 0 ? wanted : aclrtGetDevice(&device) == ACL_SUCCESS ? device : 0;
}

// allocate() is const in the base class of libtorch up to 2.2, and no longer so from 2.3 on, where copy_data() is new:
// all are here, and override what there is.
struct SimAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) { return get(bytes); }
  c10::DataPtr allocate(size_t bytes) const { return get(bytes); }
  void copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }
  static c10::DataPtr get(size_t bytes) {
    const int32_t device = current_device();
    int32_t set = -1;
    if (aclrtGetDevice(&set) != ACL_SUCCESS || set != device)
      TORCH_CHECK(aclrtSetDevice(device) == ACL_SUCCESS, "NPU error: ", aclGetRecentErrMsg());
    void* p = nullptr;
    if (bytes > 0 && aclrtMalloc(&p, bytes, 0) != ACL_SUCCESS) out_of_memory(bytes, device);
    return {p, p, &release, c10::Device(kSim, static_cast<c10::DeviceIndex>(device))};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  static void release(void* p) {
    if (p) aclrtFree(p);
  }
} allocator;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &allocator);

struct SimGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kSim; }
  c10::Device getDevice() const override { return {kSim, static_cast<c10::DeviceIndex>(current_device())}; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device before = getDevice();
    setDevice(d);
    return before;
  }
  void setDevice(c10::Device d) const override {
    TORCH_CHECK(d.index() < deviceCount(), "NPU error: invalid device id ", static_cast<int>(d.index()));
    wanted = std::max<int>(0, d.index());
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override { wanted = std::max<int>(0, d.index()); }
  c10::Stream getStream(c10::Device d) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream getDefaultStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream exchangeStream(c10::Stream s) const noexcept override { return s; }
  c10::DeviceIndex deviceCount() const noexcept override {
    uint32_t count = 0;
    aclrtGetDeviceCount(&count);
    return static_cast<c10::DeviceIndex>(count);
  }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new int64_t;
    *static_cast<int64_t*>(*event) = asked_for;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override {
    waits.add(*static_cast<int64_t*>(event) == asked_for ? "event" : "event_behind");
    return true;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<int64_t*>(event);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, SimGuard);

#ifdef SIM_HAS_HOOKS
// As the vendor's library does on loading: libtorch 2.x calls the device npu and takes it, not a GPU it was built for,
// as the accelerator whose streams the backward pass waits for.
struct SimHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const { return true; }
  bool isAvailable() const { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const { return true; }
};
const bool named = [] {
  static SimHooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::register_privateuse1_backend("npu");
  return true;
}();
#endif

// ---- tensors that share storage across the two sides

bool on_sim(const at::Tensor& t) { return t.defined() && t.device().type() == kSim; }

at::Tensor host_alias(const at::Tensor& t) {
  const auto& storage = t.storage();
  // Not owned: the device tensor outlives the call. Resizable, so that out= kernels may grow it;
  // noticed by the pointer.
  c10::Storage shared(c10::Storage::use_byte_size_t(), storage.nbytes(),
                      c10::DataPtr(storage.data_ptr().get(), c10::Device(c10::kCPU)), c10::GetAllocator(c10::kCPU),
                      /*resizable=*/true);
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(std::move(shared),
                                                              c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
  alias.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset());
  return alias;
}

at::Tensor restrided(const at::Tensor& t, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  at::Tensor out = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(t.storage()),
                                                            t.key_set(), t.dtype());
  out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  out.unsafeGetTensorImpl()->set_storage_offset(offset);
  return out;
}

void refuse_f64(at::ScalarType type) {
  TORCH_CHECK(type != at::kDouble, "[ERROR] ERR01002 OPS invalid type: NPU does not support DT_DOUBLE");
}

at::Tensor empty(at::IntArrayRef size, Optional<at::ScalarType> type, Optional<at::Layout>, Optional<at::Device> device,
                 Optional<bool>, Optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  refuse_f64(type.value_or(at::kFloat));
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, Optional<at::ScalarType> type,
                         Optional<at::Layout>, Optional<at::Device> device, Optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  refuse_f64(type.value_or(at::kFloat));
  return at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           type.value_or(at::kFloat));
}

at::Tensor side_of_copy(const at::Tensor& t) { return on_sim(t) ? host_alias(t) : t; }

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (on_sim(source) != on_sim(target) && !non_blocking) waits.add(on_sim(source) ? "copy_to_host" : "copy_to_device");
  if (on_sim(source) && !on_sim(target) && non_blocking && target.is_contiguous())
    sim::late_copies().add(host_alias(source), target);
  else
    side_of_copy(target).copy_(side_of_copy(source));
  return target;
}

const at::Tensor& grow(const at::Tensor& t, at::IntArrayRef size, Optional<at::MemoryFormat>) {
  const size_t needed = at::detail::computeStorageNbytesContiguous(size, t.dtype().itemsize(), t.storage_offset());
  if (t.storage().nbytes() < needed) {
    const c10::DeviceGuard guard(t.device());
    c10::DataPtr bigger = allocator.allocate(needed);
    if (t.storage().nbytes()) std::memcpy(bigger.get(), t.storage().data_ptr().get(), t.storage().nbytes());
    t.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(bigger));
    t.storage().unsafeGetStorageImpl()->set_nbytes(needed);
  }
  t.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return t;
}

at::Tensor copy_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (on_sim(target))
    grow(target, source.sizes(), kNone);
  else
    target.resize_(source.sizes());
  return copy_from(source, target, false);
}

at::Scalar local_scalar(const at::Tensor& t) {
  waits.add("item");
  return at::_local_scalar_dense(host_alias(t));
}

at::Tensor as_strided(const at::Tensor& t, at::IntArrayRef size, at::IntArrayRef stride, Optional<int64_t> offset) {
  return restrided(t, size, stride, offset.value_or(t.storage_offset()));
}

at::Tensor view(const at::Tensor& t, at::IntArrayRef size) {
  const at::Tensor h = host_alias(t).view(size);
  return restrided(t, h.sizes(), h.strides(), t.storage_offset());
}

at::Tensor reshape_alias(const at::Tensor& t, at::IntArrayRef size, at::IntArrayRef stride) {
  return restrided(t, size, stride, t.storage_offset());
}

at::Tensor unfold(const at::Tensor& t, int64_t dim, int64_t size, int64_t step) {
  const at::Tensor h = host_alias(t).unfold(dim, size, step);
  return restrided(t, h.sizes(), h.strides(), h.storage_offset());
}

at::Tensor& set_storage(at::Tensor& t, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  t.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  t.unsafeGetTensorImpl()->set_storage_offset(offset);
  return t;
}

at::Tensor& set_tensor(at::Tensor& t, const at::Tensor& source) {
  return set_storage(t, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

bool compatible(const at::Tensor&, const at::Tensor&) { return true; }

// ---- every other operator

struct Swap {
  at::Tensor device_side, host_side;
  const void* data;  // of the host side before the call
};

struct Call {
  std::vector<Swap> swaps;
  Optional<c10::Device> device;
  bool host_tensor = false;  // a CPU tensor with dimensions is among the arguments

  at::Tensor to_host(const at::Tensor& t) {
    if (!t.defined()) return t;
    if (!on_sim(t)) {
      host_tensor |= t.dim() > 0;
      return t;
    }
    if (!device) device = t.device();
    TORCH_CHECK(*device == t.device(),
                "Expected all tensors to be on the same device, but found at least two devices, npu:",
                int(device->index()), " and npu:", int(t.device().index()), "!");
    for (const auto& s : swaps)
      if (s.device_side.is_same(t)) return s.host_side;
    const at::Tensor h = host_alias(t);
    swaps.push_back({t, h, h.storage().data_ptr().get()});
    return h;
  }

  c10::IValue to_host(const c10::IValue& v) {
    if (v.isTensor()) return to_host(v.toTensor());
    if (v.isTensorList()) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(to_host(t));
      return list;
    }
    if (v.isOptionalTensorList()) {
      c10::List<Optional<at::Tensor>> list;
      for (const Optional<at::Tensor>& t : v.toOptionalTensorList())
        list.push_back(t ? Optional<at::Tensor>(to_host(*t)) : kNone);
      return list;
    }
    if (v.isDevice() && v.toDevice().type() == kSim) {
      device = v.toDevice();
      return c10::Device(c10::kCPU);
    }
    return v;
  }

  at::Tensor to_device(const at::Tensor& t) {
    if (!t.defined() || t.device().type() != c10::kCPU) return t;
    for (const auto& s : swaps) {
      if (s.host_side.is_same(t)) return s.device_side;
      if (t.storage().data_ptr().get() && t.storage().data_ptr().get() == s.data)
        return restrided(s.device_side, t.sizes(), t.strides(), t.storage_offset());
    }
    at::Tensor out = empty_strided(t.sizes(), t.strides(), t.scalar_type(), kNone, device, kNone);
    host_alias(out).copy_(t);
    return out;
  }

  c10::IValue to_device(const c10::IValue& v) {
    if (v.isTensor()) return to_device(v.toTensor());
    if (!v.isTensorList()) return v;
    std::vector<at::Tensor> list;
    for (const at::Tensor& t : v.toTensorVector()) list.push_back(to_device(t));
    return list;
  }

  void bring_back_grown() {  // out= arguments that the kernel resized
    for (const auto& s : swaps) {
      if (s.host_side.storage().data_ptr().get() != s.data) {
        grow(s.device_side, s.host_side.sizes(), kNone);
        host_alias(s.device_side).copy_(s.host_side);
      } else if (s.host_side.sizes() != s.device_side.sizes()) {
        s.device_side.unsafeGetTensorImpl()->set_sizes_and_strides(s.host_side.sizes(), s.host_side.strides());
      }
    }
  }
};

const c10::DispatchKeySet kHost(c10::DispatchKey::CPU);

bool is_product(const std::string& name) {
  for (const char* product : {"mm", "bmm", "mv", "addmm", "baddbmm", "addmv"})
    if (name == std::string("aten::") + product || name == std::string("aten::") + product + "_") return true;
  return false;
}

// Halves computed in f32 and rounded once. Products are, as the cube units do it: the host's own kernels may round
// every partial sum (processors without AVX-512). And what the host's library lacks
// for f16 (1.13: silu, norms, products).
void compute_in_f32(const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t first) {
  at::Tensor half, written, wide;
  for (size_t i = first; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (!value.isTensor() || !value.toTensor().defined() || value.toTensor().element_size() != 2) continue;
    half = value.toTensor(), value = half.to(at::kFloat);
    const auto* alias = op.schema().arguments()[i - first].alias_info();
    if (alias && alias->isWrite()) written = half, wide = value.toTensor();
  }
  op.redispatchBoxed(kHost, stack);
  for (size_t i = first; i < stack->size(); ++i) {
    c10::IValue& result = (*stack)[i];
    if (!half.defined() || !result.isTensor() || result.toTensor().scalar_type() != at::kFloat) continue;
    result = written.defined() ? written.copy_(wide) : result.toTensor().to(half.scalar_type());
  }
}

void compute_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t first) {
  if (is_product(op.schema().name())) return compute_in_f32(op, stack, first);
  const torch::jit::Stack arguments(stack->begin() + static_cast<int64_t>(first), stack->end());
  try {
    op.redispatchBoxed(kHost, stack);
  } catch (const c10::Error& e) {
    if (std::string(e.what()).find("not implemented for 'Half'") == std::string::npos) throw;
    stack->resize(first);
    stack->insert(stack->end(), arguments.begin(), arguments.end());
    compute_in_f32(op, stack, first);
  }
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ++asked_for;
  const size_t arguments = op.schema().arguments().size();
  const size_t first = stack->size() - arguments;
  Call call;
  for (size_t i = first; i < stack->size(); ++i) (*stack)[i] = call.to_host((*stack)[i]);
  if (const std::string& name = op.schema().name(); tells_the_host(name)) waits.add(name);
  TORCH_CHECK(!call.host_tensor || !call.device,
              "Expected all tensors to be on the same device, but found at least two devices, npu:",
              call.device ? int(call.device->index()) : 0, " and cpu! (operator ", op.schema().name(), ")");
  compute_on_host(op, stack, first);
  call.bring_back_grown();
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i)
    (*stack)[i] = call.to_device((*stack)[i]);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("unfold", unfold);
  m.impl("resize_", grow);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("_has_compatible_shallow_copy_type", compatible);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>()); }

// ---- the vendor's operators: declared, computed on the host, and present for the device

std::string name_of(const sim::Operator& op) { return std::string(op.schema, std::strchr(op.schema, '(')); }

const std::vector<sim::Operator>& vendor_operators() {
  static const std::vector<sim::Operator> all = [] {
    const char* list = std::getenv("APUS_SIM_WITHOUT");
    const std::string without = "," + std::string(list ? list : "") + ",";
    std::vector<sim::Operator> out;
    for (const auto& group : {sim::attention_operators(), sim::other_operators()})
      for (const sim::Operator& op : group)
        if (without.find("," + name_of(op) + ",") == std::string::npos) out.push_back(op);
    return out;
  }();
  return all;
}

struct VendorKernel final : c10::OperatorKernel {
  explicit VendorKernel(const sim::Operator& o) : vendor(o) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    sim::check_offered(vendor);
    sim::Args args(op, *stack);
    vendor.kernel(args);
    const char* wrong = std::getenv("APUS_SIM_WRONG");  // an operator that computes badly
    if (wrong && name_of(vendor) == wrong) {
      c10::IValue& first = (*stack)[stack->size() - op.schema().returns().size()];
      first = first.toTensor().mul(1.2);
    }
  }
  sim::Operator vendor;
};

TORCH_LIBRARY(npu, m) {
  for (const sim::Operator& op : vendor_operators()) m.def(op.schema);
}
TORCH_LIBRARY_IMPL(npu, CPU, m) {
  for (const sim::Operator& op : vendor_operators())
    m.impl(name_of(op).c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<VendorKernel>(op)));
}
// APUS_SIM_AUTOGRAD_ONLY (a name) has a kernel for gradients alone, as newest versions of the library register some.
bool autograd_only(const sim::Operator& op) {
  const char* name = std::getenv("APUS_SIM_AUTOGRAD_ONLY");
  return name && name_of(op) == name;
}
TORCH_LIBRARY_IMPL(npu, PrivateUse1, m) {
  for (const sim::Operator& op : vendor_operators())
    if (!autograd_only(op)) m.impl(name_of(op).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}
TORCH_LIBRARY_IMPL(npu, AutogradPrivateUse1, m) {
  for (const sim::Operator& op : vendor_operators())
    if (autograd_only(op)) m.impl(name_of(op).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

}  // namespace

// ---- the functions a host program looks up by their mangled names

#define APUS_EXPORTED __attribute__((visibility("default")))

// pip's build does not export these (without_init.map).
namespace torch_npu {
APUS_EXPORTED void init_npu(c10::DeviceIndex device) {
  aclInit(nullptr);
  TORCH_CHECK(aclrtSetDevice(device) == ACL_SUCCESS, "NPU error: invalid device id ", static_cast<int>(device), ": ",
              aclGetRecentErrMsg());
  wanted = device;
}
APUS_EXPORTED void finalize_npu() {}
}  // namespace torch_npu

namespace c10_npu {
APUS_EXPORTED int npuSynchronizeDevice(bool) {
  sim::late_copies().arrive();
  return aclrtSynchronizeDevice();
}
}  // namespace c10_npu

// One generator for all, the host's: random operators run there.
namespace at_npu::detail {
APUS_EXPORTED const at::Generator& getDefaultNPUGenerator(c10::DeviceIndex) {
  return at::globalContext().defaultGenerator(c10::kCPU);
}
}  // namespace at_npu::detail
