// SPDX-License-Identifier: Apache-2.0
// The compressions of Parquet pages and Arrow buffers.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace apus {

// Parquet's numbers.
enum class Codec { None = 0, Snappy = 1, Gzip = 2, Lzo = 3, Brotli = 4, Lz4Hadoop = 5, Zstd = 6, Lz4 = 7 };

// `size` is what comes out, and known beforehand; anything else is damage (Fault::Data, beginning with `where`).
std::string decompress(Codec codec, std::span<const std::byte> in, size_t size, std::string_view where);

// Snappy's block format.
std::string snappy_decompress(std::span<const std::byte> in, size_t size, std::string_view where);
// LZ4's block format; and blocks with their two sizes before each, as Hadoop writes them.
std::string lz4_decompress(std::span<const std::byte> in, size_t size, std::string_view where);
std::string hadoop_lz4_decompress(std::span<const std::byte> in, size_t size, std::string_view where);
// By libbrotlidec, where it is installed.
std::string brotli_decompress(std::span<const std::byte> in, size_t size, std::string_view where);

}  // namespace apus
