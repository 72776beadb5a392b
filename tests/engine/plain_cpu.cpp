// SPDX-License-Identifier: Apache-2.0
// The processor as a device that the engine's tests under the thread sanitizer need: it stands for devices/cpu, whose
// kernels and sockets would have to be compiled again as well.
#include "base/error.h"
#include "device/device.h"

namespace apus {
namespace {

class PlainCpu final : public DeviceKind {
 public:
  const char* name() const override { return "cpu"; }
  c10::DeviceType type() const override { return c10::kCPU; }
  int priority() const override { return 0; }
  bool available(std::string*) override { return true; }
  void open(int) override {}
  int count() const override { return 1; }
  std::string label(int) const override { return "a processor"; }
  Memory memory(int) const override { return {int64_t{4} << 30, int64_t{2} << 30, 0}; }
  void reset_peak(int) override {}
  void synchronize(int) const override {}
  bool works_apart() const override { return false; }
  void seed(uint64_t) override {}
  bool supports(c10::ScalarType) const override { return true; }
  std::string library_version() const override { return "libtorch"; }
  std::unique_ptr<Comm> connect(const Rendezvous&, std::vector<int>) const override {
    fail(Fault::Bug, "a device of the tests is asked for ranks");
  }
};

const RegisterDevice plain_cpu(std::make_unique<PlainCpu>());

}  // namespace
}  // namespace apus
