// SPDX-License-Identifier: Apache-2.0
// The points that ggml's IQ formats choose from: eight numbers each, of iq3 four. No tensor library.
#pragma once

#include <cstdint>
#include <vector>

namespace apus::ggml {

const int8_t* grid_iq2_xxs();  // 256 points
const int8_t* grid_iq2_xs();   // 512
const int8_t* grid_iq2_s();    // 1024
const int8_t* grid_iq3_xxs();  // 256
const int8_t* grid_iq3_s();    // 512
const int8_t* grid_iq1();      // 2048

}  // namespace apus::ggml
