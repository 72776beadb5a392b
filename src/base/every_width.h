// SPDX-License-Identifier: Apache-2.0
#pragma once

// One copy of a function for each width of x86's vectors; arm64's baseline has the one there is. Sanitizers cannot
// instrument the code that chooses among copies.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define APUS_EVERY_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define APUS_EVERY_WIDTH
#endif
