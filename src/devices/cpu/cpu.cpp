// SPDX-License-Identifier: Apache-2.0
// The processor as a device: memory within the container's limit, health of the libraries that make it fast or slow.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "base/error.h"
#include "device/device.h"
#include "devices/cpu/comm/comm.h"
#include "devices/cpu/host.h"
#include "devices/cpu/kernels/isa.h"
#include "devices/cpu/memory.h"
#include "tensor/compat.h"

namespace apus {

namespace {

class CpuKind final : public DeviceKind {
 public:
  const char* name() const override { return "cpu"; }
  c10::DeviceType type() const override { return c10::kCPU; }
  int priority() const override { return 0; }
  bool available(std::string*) override { return true; }
  void open(int) override {  // libtorch's own guess is one thread on some virtual machines
    std::call_once(opened_, [] {
      if (!std::getenv("OMP_NUM_THREADS") && !std::getenv("MKL_NUM_THREADS")) at::set_num_threads(cpu::usable_cores());
      cpu::keep_large_tensors();
    });
  }
  int count() const override { return 1; }
  std::string label(int) const override { return cpu::processor_name(); }
  Memory memory(int) const override {
    return {cpu::memory_total(), std::min(cpu::memory_total(), cpu::memory_free() + cpu::heap_use().kept),
            cpu::peak_resident()};
  }
  void reset_peak(int) override { cpu::reset_peak_resident(); }
  void release_cached() override { cpu::release_kept(); }
  void synchronize(int) const override {}
  bool works_apart() const override { return false; }
  void seed(uint64_t seed) override {
    at::Generator generator = at::globalContext().defaultGenerator(c10::kCPU);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed);
  }
  bool supports(c10::ScalarType dtype) const override {  // f16 has no matmul, softmax or norm on this device
    return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble;
  }
  std::string library_version() const override {
    return str("libtorch ", torch_version(), ", ", cpu::blas_name(), ", ", onednn_version(), ", kernels for ",
               cpu::isa_name(cpu::isa()), cpu::amx_is_wrong() ? " (AMX multiplies wrongly here)" : "", ", ",
               at::get_num_threads(), " threads");
  }
  std::unique_ptr<Comm> connect(const Rendezvous& rendezvous, std::vector<int> ranks) const override {
    return ranks.size() <= 1 ? lone_comm() : cpu::socket_comm(rendezvous, ranks);
  }
  Topology topology() const override { return cpu::numa_topology(); }
  std::vector<Status> status() const override {
    Status s;
    s.name = label(0), s.health = "OK", s.memory_total = cpu::memory_total();
    s.memory_used = s.memory_total - cpu::memory_free();
    return {s};
  }
  std::vector<Check> checks() override {
    return {cpu::blas_check(), instruction_check(), threads_check(), pages_check()};
  }

 private:
  std::once_flag opened_;

  static std::string onednn_version() {  // from "Intel(R) MKL-DNN v2.6.3 (Git Hash ...)"
    const std::string all = at::get_mkldnn_version();
    const size_t v = all.find(" v");
    return v == std::string::npos ? "no oneDNN" : str("oneDNN ", all.substr(v + 2, all.find(' ', v + 2) - v - 2));
  }
  static Check instruction_check() {
    const bool arm = cpu::isas().back() == cpu::Isa::I8mm;
    const char* wanted = arm ? "dotprod or i8mm" : "avx512 with bf16, or amx";
    Check check{"instruction set", Check::State::Ok, cpu::isa_name(cpu::isa()), wanted, ""};
    if (cpu::amx_is_wrong()) {
      check.state = Check::State::Warn;
      check.hint =
          "this processor says that it has AMX, but a small product on its tiles came out wrong, so they are not used: "
          "update the microcode, or the hypervisor";
    } else if (cpu::isa() < cpu::machine_isa()) {
      check.state = Check::State::Warn;
      check.hint = str("this machine has ", cpu::isa_name(cpu::machine_isa()),
                       ", but the environment's APUS_CPU_ISA forbids it: unset it");
    } else if (arm) {
      if (cpu::isa() >= cpu::Isa::Dotprod) return check;
      check.state = Check::State::Warn;
      check.hint = "without SDOT products of eight bits take several instructions each";
    } else if (cpu::isa() < cpu::Isa::Avx512) {
      check.state = Check::State::Warn;
      check.hint =
          "bf16 arithmetic is emulated in f32 here and runs at a half to a quarter of the speed of newer processors";
    }
    return check;
  }
  static Check threads_check() {
    const int threads = at::get_num_threads(), cores = cpu::usable_cores();
    Check check{"threads", Check::State::Ok, str(threads), str(cores, " (usable cores)"), ""};
    if (threads > cores) {
      check.state = Check::State::Warn;
      check.hint = str("more threads than cores wait for each other: set OMP_NUM_THREADS=", cores);
    } else if (threads < cores) {
      check.state = Check::State::Warn;
      check.hint = str("cores stay idle: set OMP_NUM_THREADS=", cores, " unless other work runs beside");
    }
    return check;
  }
  static Check pages_check() {
    Check check{"huge pages", Check::State::Ok, cpu::huge_pages_possible() ? "on request" : "off", "on request", ""};
    if (!cpu::huge_pages_possible()) {
      check.state = Check::State::Warn;
      check.hint =
          "fresh memory costs ten times more to touch: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    }
    return check;
  }
};

const RegisterDevice kRegistered{std::make_unique<CpuKind>()};

}  // namespace

}  // namespace apus
