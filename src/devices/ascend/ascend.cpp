// SPDX-License-Identifier: Apache-2.0
// The Ascend NPU as a device: found at run time, through the vendor's runtime (acl.h) and torch_npu (backend.h).
// Guards, streams and events are c10's generic ones.
#include <ATen/core/Generator.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "device/device.h"
#include "devices/ascend/acl.h"
#include "devices/ascend/backend.h"
#include "devices/ascend/hccl.h"
#include "devices/ascend/offered.h"
#include "devices/ascend/ops.h"

namespace apus {

namespace {

using namespace ascend;  // NOLINT: this file is the folder's face

class AscendKind final : public DeviceKind {
 public:
  const char* name() const override { return "npu"; }
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  int priority() const override { return 20; }
  std::string visibility_env() const override { return "ASCEND_RT_VISIBLE_DEVICES"; }

  bool available(std::string* why_not) override {
    std::call_once(looked_, [this] { why_not_ = find(); });
    if (!why_not_.empty()) *why_not = why_not_;
    return why_not_.empty();
  }
  void open(int index) override {
    std::string why_not;
    require(available(&why_not), Fault::Device, why_not);
    backend_ = &open_backend(index);
    opened_ = index;
    register_ops();
  }
  int count() const override { return count_; }
  std::string label(int index) const override {
    const Acl* runtime = acl(nullptr);
    if (!runtime || !runtime->soc_name) return "NPU";
    // Without a device where the runtime can: each process that sets one leaves a context there, and a device in
    // exclusive mode takes no second process.
    if (const std::string name = soc_name(); !name.empty()) return name;
    const CurrentDevice here(*runtime, index);
    const std::string name = soc_name();
    return name.empty() ? "NPU" : name;
  }
  Memory memory(int index) const override {
    const Acl* runtime = acl(nullptr);
    require(runtime, Fault::Bug, "memory of a device without runtime");
    const CurrentDevice here(*runtime, index);
    size_t free = 0, total = 0;
    constexpr int kHbm = 1;
    const int code = runtime->memory(kHbm, &free, &total);
    require(code == 0, Fault::Device, "aclrtGetMemInfo of device ", index, " failed with ", code, ": ", said(*runtime));
    const auto used = static_cast<int64_t>(total - free);
    return {static_cast<int64_t>(total), static_cast<int64_t>(free), std::max(peak(index), used)};
  }
  void reset_peak(int index) override {
    if (backend_ && backend_->python) run_python(str("import torch\ntorch.npu.reset_peak_memory_stats(", index, ")"));
  }
  // The self-built library has no function for it that is reachable without its headers.
  void release_cached() override {
    if (backend_ && backend_->python) run_python("import torch\ntorch.npu.empty_cache()");
  }
  void synchronize(int index) const override {
    const Acl* runtime = acl(nullptr);
    if (!backend_ || !runtime) return;
    const c10::DeviceGuard here(c10::Device(type(), static_cast<c10::DeviceIndex>(index)));
    // torch_npu's own way first: it also waits for the queue of launches it keeps on the host.
    if (backend_->synchronize_device)
      backend_->synchronize_device(true);
    else if (backend_->synchronize)
      backend_->synchronize(index);
    else
      runtime->synchronize();
  }
  void seed(uint64_t seed) override {
    if (backend_ && backend_->generator) {
      for (int i = 0; i < count_; ++i) {
        at::Generator generator = *static_cast<const at::Generator*>(backend_->generator(static_cast<int8_t>(i)));
        const std::lock_guard<std::mutex> lock(generator.mutex());
        generator.set_current_seed(seed);
      }
    } else if (backend_ && backend_->python) {
      run_python(str("import torch\ntorch.npu.manual_seed_all(", seed, ")"));
    }
  }
  bool supports(c10::ScalarType dtype) const override {  // no f64 anywhere; bf16 from 910B on
    if (dtype == at::kFloat || dtype == at::kHalf) return true;
    return dtype == at::kBFloat16 && has_bf16();
  }
  // 128 is the one size that all forms of the vendor's attention over a paged cache take.
  int64_t cache_block() const override { return 128; }
  std::string native_op(const std::string& op) const override { return vendor_name(op); }
  std::string library_version() const override {
    const Acl* runtime = acl(nullptr);
    if (!runtime) return "no runtime";
    int32_t major = 0, minor = 0, patch = 0;
    const bool known = runtime->version && runtime->version(&major, &minor, &patch) == 0;
    const std::string back_end = !library_place().file.empty() ? library_place().file : pip_place().python.torch_npu;
    return str("torch_npu at ", back_end, ", ", known ? str("ACL ", major, ".", minor, ".", patch, " at ") : "ACL at ",
               runtime->file, cann_version().empty() ? "" : str(", CANN ", cann_version()));
  }
  std::unique_ptr<Comm> connect(const Rendezvous& rendezvous, std::vector<int> ranks) const override {
    return ranks.size() <= 1 ? lone_comm() : hccl_connect(rendezvous, ranks);
  }

 private:
  // Makes a device the thread's current one for the runtime's calls, and the former one afterwards.
  struct CurrentDevice {
    CurrentDevice(const Acl& runtime, int index) : acl(runtime) {
      known = acl.get_device(&before) == 0;
      const int code = acl.set_device(index);
      require(code == 0, Fault::Device, "device npu:", index, " cannot be used: aclrtSetDevice failed with ", code,
              ": ", said(acl));
    }
    ~CurrentDevice() {
      if (known) acl.set_device(before);
    }
    CurrentDevice(const CurrentDevice&) = delete;
    CurrentDevice& operator=(const CurrentDevice&) = delete;
    const Acl& acl;
    int32_t before = 0;
    bool known = false;
  };

  static std::string said(const Acl& runtime) {
    const char* text = runtime.recent_error ? runtime.recent_error() : nullptr;
    return text && *text ? text : "the runtime says no more";
  }

  // Why it cannot be used; empty when it can. Opens the runtime, not torch_npu, which takes seconds.
  std::string find() {
    std::string why_not;
    const Acl* runtime = acl(&why_not);
    if (!runtime) return why_not;
    constexpr int kAlready = 100002;  // initialised by somebody else in this process
    if (const int code = runtime->init(nullptr); code != 0 && code != kAlready)
      return str("aclInit failed with ", code, ": ", said(*runtime), " (is the driver loaded? `npu-smi info`)");
    uint32_t count = 0;
    if (const int code = runtime->device_count(&count); code != 0)
      return str("aclrtGetDeviceCount failed with ", code, ": ", said(*runtime),
                 " (is the driver loaded? `npu-smi info`)");
    if (count == 0) return "CANN sees no device: is ASCEND_RT_VISIBLE_DEVICES right, and are /dev/davinci* there?";
    count_ = static_cast<int>(count);
    if (library_place().file.empty() && pip_place().python.torch_npu.empty())
      return str("CANN and ", count, " devices are here, torch_npu is not. Tried:", library_place().notes,
                 pip_place().notes);
    return "";
  }

  bool has_bf16() const { return is_newer_chip(label(opened_)); }

  // What torch_npu's allocator counts; only the build in Python tells.
  int64_t peak(int index) const {
    if (!backend_ || !backend_->python) return 0;
    return std::stoll(run_python(str("import torch\nanswer = torch.npu.max_memory_reserved(", index, ")")));
  }

  std::once_flag looked_;
  std::string why_not_;
  int count_ = 0, opened_ = 0;
  const Backend* backend_ = nullptr;  // set by open(), before any tensor exists
};

const RegisterDevice kRegistered{std::make_unique<AscendKind>()};

}  // namespace

}  // namespace apus
