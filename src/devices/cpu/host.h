// SPDX-License-Identifier: Apache-2.0
// What the operating system says about this machine: memory within the container's limit, processor, NUMA, libraries.
#pragma once

#include <cstdint>
#include <string>

#include "device/topology.h"

namespace apus::cpu {

// Bytes this process may use: the machine's, or its control group's limit.
int64_t memory_total();
int64_t memory_free();    // bytes that can still be had without swapping
int64_t peak_resident();  // bytes, since reset_peak_resident()
void reset_peak_resident();
std::string processor_name();
// Physical, by affinity and the control group's quota, at least 1.
int usable_cores();
bool huge_pages_possible();  // madvise(MADV_HUGEPAGE) does something
Topology numa_topology();

// Path of the shared library a C symbol comes from, links resolved; empty when nothing has it.
std::string library_of(const char* symbol);

// "OpenBLAS", "MKL", "BLIS", "reference BLAS" or the file's name; from the library that serves sgemm_.
std::string blas_name();
Check blas_check();

}  // namespace apus::cpu
