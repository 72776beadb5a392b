// SPDX-License-Identifier: Apache-2.0
// Bytes that claim to be a Parquet or Arrow file: rows or an Error, nothing else. The first byte chooses the format.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "data/read/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const int file = ::memfd_create("fuzz", 0);
  if (::write(file, data + 1, size - 1) < 0) return 0;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  try {
    const auto reader = data[0] & 1 ? apus::open_parquet(path) : apus::open_arrow(path);
    apus::Row row;
    for (int rows = 0; rows < 1000 && reader->next(row); ++rows) apus::json_text(row.value);
  } catch (const apus::Error& error) {
    if (error.at.fault == apus::Fault::Bug) __builtin_trap();
  }
  ::close(file);
  return 0;
}
