// SPDX-License-Identifier: Apache-2.0
// The bytes of a medium, from wherever a row says: a file, a data URI, base64, or a URL.
#pragma once

#include <cstdint>
#include <string>

namespace apus {

struct SourceLimits {
  int64_t bytes = 64 << 20;
  int64_t quiet_seconds = 20;  // of a server; SWIFT_TIMEOUT
  int64_t seconds = 0;         // for one URL; 0: any time
  bool public_only = false;    // URLs come from strangers: they must not lead into private networks
};

// The limits of this process: SWIFT_TIMEOUT of the environment counts.
SourceLimits source_limits();

// Fault::Data, with the entry's beginning, for what cannot be had.
std::string media_bytes(const std::string& entry, const SourceLimits& limits);

// Whether media_bytes takes it for the path of a file.
bool is_local_file(const std::string& entry);

// What errors call it: a path or URL, shortened; of data URIs and base64 the beginning.
std::string entry_name(const std::string& entry);

}  // namespace apus
