// SPDX-License-Identifier: Apache-2.0
#include "devices/ascend/hccl_api.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "devices/ascend/libraries.h"

namespace apus::ascend {

namespace {

HcclApi open_api() {
  std::string why;
  void* library = open_library("libhccl.so", &why);
  require(library != nullptr, Fault::Comm,
          "several devices need the vendor's library libhccl.so, which does not load: ", why,
          "; `source <CANN>/set_env.sh` makes it found");
  void* runtime = open_library("libascendcl.so", &why);
  require(runtime != nullptr, Fault::Comm, "libascendcl.so does not load: ", why);
  HcclApi t;
  std::vector<std::string> missing;
  const auto need = [&](void* from, const char* name, auto& function) {
    if (!look_up(from, name, function)) missing.push_back(name);
  };
  need(library, "HcclGetRootInfo", t.root_info);
  need(library, "HcclCommInitRootInfo", t.init);
  need(library, "HcclCommDestroy", t.destroy);
  need(library, "HcclAllReduce", t.all_reduce);
  need(library, "HcclAllGather", t.all_gather);
  need(library, "HcclReduceScatter", t.reduce_scatter);
  need(library, "HcclBroadcast", t.broadcast);
  need(library, "HcclAlltoAllV", t.all_to_all_v);
  need(library, "HcclSend", t.send);
  need(library, "HcclRecv", t.recv);
  need(runtime, "aclrtSetDevice", t.set_device);
  need(runtime, "aclrtCreateStream", t.create_stream);
  need(runtime, "aclrtDestroyStream", t.destroy_stream);
  need(runtime, "aclrtSynchronizeStream", t.synchronize);
  look_up(runtime, "aclrtSynchronizeStreamWithTimeout", t.synchronize_within);
  look_up(library, "HcclCommInitRootInfoConfig", t.init_config);
  look_up(library, "HcclGetCommConfigCapability", t.config_capability);
  look_up(library, "HcclGetErrorString", t.error_string);
  if (t.root_info) t.file = file_of(reinterpret_cast<const void*>(t.root_info));
  require(missing.empty(), Fault::Comm, t.file.empty() ? "libhccl.so" : t.file, " lacks ", join(missing),
          ": this CANN is too old, or another one comes first in LD_LIBRARY_PATH; `apus doctor` says which");
  return t;
}

}  // namespace

const HcclApi& hccl_api() {
  static const HcclApi api = open_api();
  return api;
}

CommConfig make_comm_config(const HcclApi& api, const std::string& name) {
  constexpr uint32_t kNotSet = 0xffffffff, kNameCapability = 2;
  // Up to `deterministic`: what libraries without named communicators know.
  constexpr size_t kFirstSize = 32;
  CommConfig c{};
  const bool named = api.config_capability && api.config_capability() > kNameCapability;
  c.size = named ? sizeof c : kFirstSize;
  c.magic = 0xf0f0f0f0, c.version = named ? 6 : 1;
  const char* buffer = std::getenv("HCCL_BUFFSIZE");
  c.buffer_mb = buffer ? static_cast<uint32_t>(std::max(1, std::atoi(buffer))) : 200;
  const char* variable = std::getenv("HCCL_DETERMINISTIC");  // what stands here counts, not the variable
  const std::string deterministic = variable ? variable : "";
  c.deterministic = deterministic == "strict" ? 2 : deterministic == "true" ? 1 : 0;
  if (named) std::strncpy(c.name, name.c_str(), sizeof c.name - 1);
  c.traffic_class = c.service_level = kNotSet;
  return c;
}

}  // namespace apus::ascend
