// SPDX-License-Identifier: Apache-2.0
// The functions of the vendor's runtime (libascendcl) that Apus calls, looked up at run time:
// no header, nothing linked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace apus::ascend {

// aclCANNPackageVersion: the whole version, then its parts.
struct CannVersion {
  char text[128], parts[4][64], reserved[128];
};

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
  int (*cann_version)(int package, CannVersion* version) = nullptr;  // from CANN 8.1.RC1 on
  int (*package_version)(char* package, char* text) = nullptr;       // from CANN 9.0 on; 128 bytes
  std::string file;                                                  // where it came from
};

// The table, or null with the reason. Looked for once.
const Acl* acl(std::string* why_not);

}  // namespace apus::ascend
