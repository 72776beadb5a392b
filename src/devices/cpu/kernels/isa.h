// SPDX-License-Identifier: Apache-2.0
// Which instruction sets the kernels may use:
// asked of the processor at run time, so that one binary serves every machine.
#pragma once

#include <string>
#include <vector>

namespace apus::cpu {

enum class Isa {
  Generic,  // what the compiler's baseline gives
  Neon,     // arm64's baseline
  Dotprod,  // NEON with SDOT: four products of bytes a lane
  I8mm,     // the above and SMMLA: eight columns of two rows by those of two others
  Avx2,     // AVX2 and FMA
  Avx512,   // AVX-512 F, BW, VL, DQ, VNNI (vpdpbusd) and BF16 (vdpbf16ps)
  Amx,      // the above and AMX tiles in bf16
};

// Those that this program is compiled for, in rising order: of one kind of processor.
const std::vector<Isa>& isas();
Isa machine_isa();  // the best this machine and its kernel allow
// The one in use: machine_isa(), or less where APUS_CPU_ISA in the environment or cap_isa() says so.
Isa isa();
// For tests that carry out AMX instructions in software on machines without AMX:
// from now on machine_isa() gives at least this.
void assume_isa(Isa isa);

// Whether AMX tiles multiply as they should, by one small product; the processor must know their instructions. Asked
// once where it says so: if not, the machine counts as one without AMX, and amx_is_wrong() says why.
bool amx_multiplies();
bool amx_is_wrong();

const char* isa_name(Isa isa);           // "generic", "neon", "dotprod", "i8mm", "avx2", "avx512", "amx"
Isa parse_isa(const std::string& name);  // one of isas()

// Whether vdpbf16ps is the faster way to multiply bf16. It does the work of two f32 FMAs: AMD's processors begin two of
// either in a cycle; Intel's two FMAs in a cycle, but one vdpbf16ps in two.
bool bf16_pairs_pay();

// Lets kernels use no more than `cap` from now on; returns what isa() was. Tests and benches compare the paths with it.
Isa cap_isa(Isa cap);

}  // namespace apus::cpu
