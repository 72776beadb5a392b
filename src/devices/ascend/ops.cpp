// SPDX-License-Identifier: Apache-2.0
#include "devices/ascend/ops.h"
#include "devices/vendor_op.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "base/log.h"
#include "base/nearest.h"

namespace apus::ascend {

namespace {

bool left_to_reference(const std::string& op) {
  const char* list = std::getenv("APUS_REFERENCE_OPS");
  std::istringstream names(list ? list : "");
  for (std::string name; std::getline(names, name, ',');)
    if (name == op || name == "all") return true;
  return false;
}

std::map<std::string, std::string> register_all() {
  // Kept for the life of the process: it removes its kernels when it goes.
  static auto* library = new torch::Library(torch::Library::IMPL, "apus", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  std::map<std::string, std::string> done;
  for (const auto& group : {norm_ops(), pointwise_ops(), attention_ops(), paged_attention_ops(), moe_ops(), optimizer_ops()})
    for (const NativeOp& n : group) {
      const bool all = std::all_of(n.vendor.begin(), n.vendor.end(), [](const std::string& name) { return VendorOp(name).present(c10::DispatchKey::PrivateUse1); });
      if (!all || done.count(n.op) || left_to_reference(n.op)) continue;
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
