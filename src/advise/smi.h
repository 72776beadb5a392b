// SPDX-License-Identifier: Apache-2.0
// What the vendors' tools print, as data. Pure functions of text that may hold anything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "device/topology.h"

namespace apus {

// `npu-smi info`: boxes of A2 (one chip a card), A3 (two dies a card, numbered by Phy-ID), 310P and 910A. Column
// positions differ between releases; fields between the bars do not.
std::vector<Status> parse_npu_smi(std::string_view text);
std::string npu_smi_version(std::string_view text);  // of its banner: the driver's tools, not CANN

// One line a device of `nvidia-smi --query-gpu=<kNvidiaQuery> --format=csv,noheader,nounits`.
inline constexpr const char* kNvidiaQuery =
    "index,name,power.draw,temperature.gpu,utilization.gpu,memory.total,memory.used,driver_version,ecc.errors."
    "uncorrected.volatile.total";
std::vector<Status> parse_nvidia_csv(std::string_view text);

// `npu-smi info -t topo` and `nvidia-smi topo -m`: a matrix of words, CPU affinity, a legend. Rows of network cards are
// left out.
Topology parse_topology(std::string_view text);

}  // namespace apus
