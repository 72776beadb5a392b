// SPDX-License-Identifier: Apache-2.0
// What the vendors' tools print, as data. Pure functions of text that may hold anything.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/topology.h"

namespace apus {

// `npu-smi info`: boxes of A2 (one chip a card), A3 (two dies a card, numbered by Phy-ID), 950, 310P, 310 and 910A.
// Column positions differ between releases; fields between the bars do not.
std::vector<Status> parse_npu_smi(std::string_view text);
std::string npu_smi_version(std::string_view text);  // of its banner: the driver's tools, not CANN

// One line a device of `nvidia-smi --query-gpu=<kNvidiaQuery> --format=csv,noheader,nounits`.
inline constexpr const char* kNvidiaQuery =
    "index,name,power.draw,temperature.gpu,utilization.gpu,memory.total,memory.used,driver_version,ecc.errors."
    "uncorrected.volatile.total";
std::vector<Status> parse_nvidia_csv(std::string_view text);

// `nvidia-smi` without arguments, for drivers that do not answer the query: the boxes of all its releases.
std::vector<Status> parse_nvidia_table(std::string_view text);

// `nvidia-smi -L`: the parts of divided devices (MIG), "1g.5gb" of each device's number.
std::vector<std::pair<int, std::string>> parse_mig_list(std::string_view text);

// `npu-smi info -t topo` and `nvidia-smi topo -m`: a matrix of words, CPU affinity, a legend. Rows and columns of
// network cards are left out.
Topology parse_topology(std::string_view text);

}  // namespace apus
