// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/ops.h"

#include <map>

#include "base/log.h"
#include "devices/cuda/kernel.h"
#include "devices/reference_ops.h"

namespace apus::cuda {

namespace {

std::map<std::string, std::string> register_all() {
  // Kept for the life of the process: it removes its kernels when it goes.
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "apus", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  std::map<std::string, std::string> done;
  const auto add = [&](const std::vector<OwnOp>& ops) {
    for (const OwnOp& o : ops) {
      if (left_to_reference(o.op)) continue;
      o.add(*library, o.op);
      done[o.op] = o.by;
    }
  };
  add(attention_ops());
  if (const std::string why = why_no_kernels(); !why.empty()) {
    log_warning("no kernels of ours for GPUs, so most operators run by their reference, slowly: ", why);
    return done;
  }
  for (const auto& group : {norm_ops(), pointwise_ops(), paged_attention_ops(), linear_ops(), code_ops(), moe_ops(),
                            optimizer_ops(), draw_ops()})
    add(group);
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

}  // namespace apus::cuda
