// SPDX-License-Identifier: Apache-2.0
// The functions of the vendor's collective library (libhccl) and of its streams that Apus calls, looked up at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace apus::ascend {

struct RootInfo {
  char bytes[4108];
};

// The first fields of the library's HcclCommConfig; its own size and version fields tell how much of it is there.
struct CommConfig {
  size_t size;
  uint32_t magic, version;
  uint64_t reserved;
  uint32_t buffer_mb, deterministic;
  char name[128], udi[128];
  uint32_t expansion_mode, traffic_class, service_level, world_rank;
  uint64_t job;
};

using HcclComm = void*;
using Stream = void*;

struct HcclApi {
  int (*root_info)(RootInfo*) = nullptr;
  int (*init)(uint32_t ranks, const RootInfo*, uint32_t rank, HcclComm*) = nullptr;
  // From CANN 8.0.RC2 on.
  int (*init_config)(uint32_t ranks, const RootInfo*, uint32_t rank, const CommConfig*, HcclComm*) = nullptr;
  uint32_t (*config_capability)() = nullptr;  // from CANN 8.0.RC3 on
  int (*destroy)(HcclComm) = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*all_reduce)(void* in, void* out, uint64_t count, int type, int op, HcclComm, Stream) = nullptr;
  int (*all_gather)(void* in, void* out, uint64_t count, int type, HcclComm, Stream) = nullptr;
  int (*reduce_scatter)(void* in, void* out, uint64_t count, int type, int op, HcclComm, Stream) = nullptr;
  int (*broadcast)(void* data, uint64_t count, int type, uint32_t root, HcclComm, Stream) = nullptr;
  int (*all_to_all_v)(const void* in, const void* in_counts, const void* in_offsets, int in_type, const void* out,
                      const void* out_counts, const void* out_offsets, int out_type, HcclComm, Stream) = nullptr;
  int (*send)(void* data, uint64_t count, int type, uint32_t to, HcclComm, Stream) = nullptr;
  int (*recv)(void* data, uint64_t count, int type, uint32_t from, HcclComm, Stream) = nullptr;
  // of libascendcl
  int (*set_device)(int32_t) = nullptr;
  int (*create_stream)(Stream*) = nullptr;
  int (*destroy_stream)(Stream) = nullptr;
  int (*synchronize)(Stream) = nullptr;
  int (*synchronize_within)(Stream, int32_t milliseconds) = nullptr;
  std::string file;
};

// Opened once. Throws Fault::Comm naming the library, the file it came from and the symbols it lacks.
const HcclApi& hccl_api();

// A configuration in which the library, or the environment, decides everything but the communicator's name.
CommConfig make_comm_config(const HcclApi& api, const std::string& name);

}  // namespace apus::ascend
