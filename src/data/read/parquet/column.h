// SPDX-License-Identifier: Apache-2.0
// One column of one row group, value by value; a page is uncompressed and decoded when it is reached.
#pragma once

#include <cstddef>
#include <deque>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/read/parquet/compression.h"
#include "data/read/parquet/schema.h"

namespace apus {

// Decoded values of a page or a dictionary; the leaf's type decides which of the vectors is filled.
struct ParquetValues {
  std::vector<int64_t> integers;
  std::vector<double> reals;
  std::vector<std::string_view> texts;  // into the page, or into `owned`
  std::deque<std::string> owned;        // where views need memory of their own
  size_t size() const { return integers.size() + reals.size() + texts.size(); }
};

class ParquetColumn {
 public:
  // `file` is the mapped file, `chunk` the column's metadata of this row group. Both are kept by the caller.
  ParquetColumn(std::span<const std::byte> file, const ThriftValue& chunk, const ParquetNode& leaf,
                const std::string& where);

  bool done() const { return seen_ >= total_ && at_ >= in_page_; }
  int def() { return levels(def_); }  // of the current entry
  int rep() { return levels(rep_); }
  Json value();  // of the current entry; null where it is not defined
  void advance();

 private:
  int levels(const std::vector<uint32_t>& of) {
    ensure();
    return of.empty() ? 0 : static_cast<int>(of[at_]);
  }
  void ensure();
  void load_page();
  void load_dictionary(const ThriftValue& header, std::span<const std::byte> body);
  void load_v1(const ThriftValue& header, std::span<const std::byte> body);
  void load_v2(const ThriftValue& header, std::span<const std::byte> body);
  void start_page(size_t entries);
  void decode(int64_t encoding, std::string_view bytes, size_t defined);
  void plain(ParquetValues& out, std::string_view bytes, size_t count) const;
  void split_streams(std::string_view bytes, size_t count);
  Json cell(const ParquetValues& values, size_t index) const;

  std::span<const std::byte> file_;
  const ParquetNode& leaf_;
  std::string where_;
  Codec codec_;
  size_t next_page_ = 0, end_ = 0;      // bytes of the file
  int64_t total_ = 0, seen_ = 0;        // entries of the chunk; entries of the pages loaded
  std::string page_, dictionary_page_;  // uncompressed
  ParquetValues values_, dictionary_;
  std::vector<uint32_t> def_, rep_, index_;
  bool by_index_ = false, has_dictionary_ = false;
  size_t at_ = 0, in_page_ = 0, value_at_ = 0;
};

}  // namespace apus
