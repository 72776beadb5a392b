// SPDX-License-Identifier: Apache-2.0
#include "devices/ascend/ops.h"

#include <map>

#include "base/log.h"
#include "base/nearest.h"
#include "devices/ascend/offered.h"
#include "devices/reference_ops.h"
#include "devices/vendor_op.h"

namespace apus::ascend {

namespace {

// Why a kernel of ours cannot be used: the first of the vendor's operators it calls that is
// not there. Empty when all are.
std::string missing(const NativeOp& n, const std::string& soc) {
  for (const std::string& name : n.vendor) {
    if (!VendorOp(name).present(c10::DispatchKey::PrivateUse1)) return str("torch_npu has no ", name);
    if (const std::string why_not = lacking(name, soc); !why_not.empty()) return str(name, ": ", why_not);
  }
  return "";
}

std::map<std::string, std::string> register_all() {
  // Kept for the life of the process: it removes its kernels when it goes.
  static auto* library =
      new torch::Library(torch::Library::IMPL, "apus", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  std::map<std::string, std::string> done;
  const std::string soc = soc_name();
  for (const auto& group :
       {norm_ops(), pointwise_ops(), attention_ops(), paged_attention_ops(), moe_ops(), optimizer_ops(), code_ops()})
    for (const NativeOp& n : group) {
      if (done.count(n.op) || left_to_reference(n.op)) continue;
      if (const std::string why_not = missing(n, soc); !why_not.empty()) {
        log_debug(n.op, " is left to the reference: ", why_not);
        continue;
      }
      n.add(*library, n.op);
      std::vector<std::string> plain;
      for (const std::string& name : n.vendor) plain.push_back(name.substr(name.find("::") + 2));
      done[n.op] = join(plain, " + ");
    }
  log_debug(done.size(), " operators are the vendor's");
  return done;
}

const std::map<std::string, std::string>& registered(bool now) {
  static const std::map<std::string, std::string> none;
  static bool opened = false;  // under the lock of the first call of register_ops
  opened |= now;
  if (!opened) return none;
  static const auto done = register_all();
  return done;
}

}  // namespace

void register_ops() { registered(true); }

std::string vendor_name(const std::string& op) {
  const auto& done = registered(false);
  const auto found = done.find(op);
  return found == done.end() ? "" : found->second;
}

}  // namespace apus::ascend
