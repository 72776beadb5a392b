// SPDX-License-Identifier: Apache-2.0
// Which samples share a forward pass. Pure functions of lengths: the same everywhere and every time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace apus {

using Bin = std::vector<size_t>;  // indices of samples, ascending

enum class PackingStrategy { BestFit, Sequential };
PackingStrategy packing_named(const std::string& name);  // "binpack", "sequential"; Fault::Usage

// Bins of at most `capacity` tokens; a sample longer than that has one for itself. Best fit: the longest samples first,
// each into the fullest bin that has room. Sequential: the next bin begins when a sample does not fit. The bins come in
// the order of their first samples, so that shuffled samples give shuffled bins.
std::vector<Bin> pack(const std::vector<int64_t>& lengths, int64_t capacity, PackingStrategy strategy);

// The same in groups of so many samples; the emptiest bin of a group is packed anew with the next one.
std::vector<Bin> pack_in_groups(const std::vector<int64_t>& lengths, int64_t capacity, PackingStrategy strategy,
                                size_t group = 1000);

// The index of the bin with the fewest tokens; bins must not be empty.
size_t emptiest(const std::vector<Bin>& bins, const std::vector<int64_t>& lengths);

}  // namespace apus
