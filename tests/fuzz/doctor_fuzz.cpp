// SPDX-License-Identifier: Apache-2.0
// What the doctor reads from outside: libraries, vendors' tools, version numbers, logs. Anything is read without harm,
// and matrices of links come out square.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "doctor/elf.h"
#include "doctor/failures.h"
#include "doctor/smi.h"
#include "doctor/versions.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string why;
  switch (data[0] % 4) {
    case 0: {
      const auto elf = apus::Elf::parse(text, &why);
      if (!elf && why.empty()) std::abort();
      if (elf) elf->defines("aclInit"), elf->defines_one_with("Hccl"), elf->machine();
      break;
    }
    case 1: {
      for (const auto& status : apus::parse_npu_smi(text))
        if (status.index < 0 || status.name.empty()) std::abort();
      apus::parse_nvidia_csv(text);
      for (const auto& status : apus::parse_nvidia_table(text))
        if (status.index < 0 || status.name.empty()) std::abort();
      apus::parse_mig_list(text);
      const apus::Topology t = apus::parse_topology(text);
      if (t.link.size() != t.names.size() || t.cpu_affinity.size() != t.names.size()) std::abort();
      for (const auto& row : t.link)
        if (row.size() != t.names.size()) std::abort();
      break;
    }
    case 2: {
      const size_t half = text.size() / 2;
      const std::string a = text.substr(0, half), b = text.substr(half);
      if (apus::older(a, b) && apus::older(b, a)) std::abort();
      break;
    }
    default:
      for (const auto& finding : apus::explain_text(text).findings)
        if (finding.line < 1 || finding.count < 1) std::abort();
  }
  return 0;
}
