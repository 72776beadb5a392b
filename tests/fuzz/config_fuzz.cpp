// SPDX-License-Identifier: Apache-2.0
// Configuration files of any content, YAML and JSON: they are read, or an error says why not. So is repaired JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/config_file.h"
#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const bool yaml : {true, false}) {
    try {
      for (const auto& entry : apus::parse_config(text, yaml, "file").entries) {
        if (entry.value.is_null()) std::abort();  // nulls are left out
      }
    } catch (const apus::Error& error) {
      if (error.at.fault != apus::Fault::Usage) std::abort();
    }
  }
  try {
    apus::parse_json(apus::repaired_json(text), "text");
  } catch (const apus::Error& error) {
    if (error.at.fault != apus::Fault::Data) std::abort();
  }
  return 0;
}
