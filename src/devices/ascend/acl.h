// SPDX-License-Identifier: Apache-2.0
// The functions of the vendor's runtime (libascendcl) that Apus calls, looked up at run time:
// no header, nothing linked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace apus::ascend {

struct Acl {
  int (*init)(const char* config_path) = nullptr;
  int (*device_count)(uint32_t* count) = nullptr;
  int (*set_device)(int32_t device) = nullptr;
  int (*get_device)(int32_t* device) = nullptr;
  int (*synchronize)() = nullptr;                                       // the current device
  int (*memory)(int attribute, size_t* free, size_t* total) = nullptr;  // of the current device
  int (*version)(int32_t* major, int32_t* minor, int32_t* patch) = nullptr;
  const char* (*soc_name)() = nullptr;
  const char* (*recent_error)() = nullptr;
  std::string file;  // where it came from
};

// The table, or null with the reason. Looked for once.
const Acl* acl(std::string* why_not);

}  // namespace apus::ascend
