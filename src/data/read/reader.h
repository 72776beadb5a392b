// SPDX-License-Identifier: Apache-2.0
// Rows out of one file, one at a time with bounded memory; reading can go on later from any row.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/rows/row.h"

namespace apus {

// Where the next row begins.
struct ReadPosition {
  int64_t row = 0;               // rows before it, bad ones included
  int64_t offset = 0, line = 1;  // text files: byte (uncompressed) and line
};

class RowReader {
 public:
  virtual ~RowReader() = default;
  // False at the end. Throws RowError for a row that cannot be read; the next call gives the one after it.
  virtual bool next(Row& row) = 0;
  virtual ReadPosition position() const = 0;
  virtual void seek(const ReadPosition& position) = 0;  // on a fresh reader
};

// By the name's ending (.jsonl .ndjson .json .csv .tsv .txt .parquet .arrow; .gz and .zst behind the text ones).
// `encoding`: of text files, as iconv names it; empty: UTF-8.
std::unique_ptr<RowReader> open_reader(const std::filesystem::path& path, const std::string& encoding = "");
bool readable_name(const std::filesystem::path& path);  // does open_reader know the ending?
// JSON lines as they lie there: such a file, standard input ("-"), or a name without a known ending.
bool is_plain_json_lines(const std::filesystem::path& path);

// By format, for open_reader.
std::unique_ptr<RowReader> open_json_lines(const std::filesystem::path& path, const std::string& encoding);
std::unique_ptr<RowReader> open_json(const std::filesystem::path& path, const std::string& encoding);
std::unique_ptr<RowReader> open_csv(const std::filesystem::path& path, char delimiter, const std::string& encoding);
std::unique_ptr<RowReader> open_text(const std::filesystem::path& path, const std::string& encoding);
std::unique_ptr<RowReader> open_parquet(const std::filesystem::path& path);
std::unique_ptr<RowReader> open_arrow(const std::filesystem::path& path);

}  // namespace apus
