// SPDX-License-Identifier: Apache-2.0
// Text files of rows through reading and normalising: canonical rows or an Error, nothing else. The first byte chooses
// the format. What is canonical must stay as it is when it is normalised again.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "data/read/reader.h"
#include "data/rows/normalize.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const int file = ::memfd_create("fuzz", 0);
  if (::write(file, data + 1, size - 1) < 0) return 0;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  try {
    const auto reader = data[0] % 3 == 0   ? apus::open_json_lines(path, "")
                        : data[0] % 3 == 1 ? apus::open_json(path, "")
                                           : apus::open_csv(path, ',', "");
    for (int rows = 0; rows < 1000; ++rows) {
      try {
        apus::Row row;
        if (!reader->next(row)) break;
        row.value = apus::normalize_row(row, {});
        if (apus::normalize_row(row, {})["messages"] != row.value["messages"]) __builtin_trap();
      } catch (const apus::RowError&) {}
    }
  } catch (const apus::Error& error) {
    if (error.at.fault == apus::Fault::Bug) __builtin_trap();
  }
  ::close(file);
  return 0;
}
