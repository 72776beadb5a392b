// SPDX-License-Identifier: Apache-2.0
#include "data/read/reader.h"

#include <algorithm>

namespace apus {
namespace fs = std::filesystem;

namespace {

// The ending that says what is inside: "jsonl" of "a.jsonl.gz".
std::string format_of(const fs::path& path) {
  fs::path name = path.filename();
  std::string ending = name.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  if (ending == ".gz" || ending == ".zst" || ending == ".zstd") return format_of(name.stem());
  return ending.empty() ? ending : ending.substr(1);
}

}  // namespace

bool readable_name(const fs::path& path) {
  static const std::string known[] = {"jsonl", "ndjson", "json", "csv", "tsv", "txt", "parquet", "arrow"};
  const std::string format = format_of(path);
  return std::find(std::begin(known), std::end(known), format) != std::end(known);
}

bool is_plain_json_lines(const fs::path& path) {
  const std::string ending = path.extension().string();
  return ending == ".jsonl" || ending == ".ndjson" || !readable_name(path);
}

std::unique_ptr<RowReader> open_reader(const fs::path& path, const std::string& encoding) {
  const std::string format = format_of(path);
  if (format == "jsonl" || format == "ndjson") return open_json_lines(path, encoding);
  if (format == "json") return open_json(path, encoding);
  if (format == "csv") return open_csv(path, ',', encoding);
  if (format == "tsv") return open_csv(path, '\t', encoding);
  if (format == "txt") return open_text(path, encoding);
  if (format == "parquet") return open_parquet(path);
  if (format == "arrow") return open_arrow(path);
  fail(Fault::Usage, path.string(), ": unknown kind of dataset file",
       format.empty() ? std::string() : " (." + format + ")",
       "; known are .jsonl .json .csv .tsv .txt .parquet .arrow, the text ones also with .gz or .zst behind");
}

}  // namespace apus
