// SPDX-License-Identifier: Apache-2.0
// Reader of Parquet files: the footer says where the columns of each row group lie;
// rows are put together from their levels.
#include <cmath>
#include <cstring>

#include "base/files.h"
#include "data/read/parquet/column.h"
#include "data/read/reader.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kLongestList = int64_t{1} << 24;

// FileMetaData and RowGroup.
enum File { kFileSchema = 2, kRows = 3, kGroups = 4 };
enum Group { kColumns = 1, kGroupRows = 3 };

class ParquetRows : public RowReader {
 public:
  explicit ParquetRows(const fs::path& path) : file_(path), name_(std::make_shared<const std::string>(path.string())) {
    const auto bytes = file();
    require(bytes.size() >= 12 && std::memcmp(bytes.data() + bytes.size() - 4, "PAR1", 4) == 0, Fault::Data, *name_,
            ": not a whole Parquet file (its end mark is missing; was it downloaded completely?)");
    uint32_t length;
    std::memcpy(&length, bytes.data() + bytes.size() - 8, 4);
    require(length <= bytes.size() - 12, Fault::Data, *name_, ": damaged Parquet footer");
    size_t used = 0;
    meta_ = parse_thrift(bytes.subspan(bytes.size() - 8 - length, length), used, *name_);
    root_ = parquet_schema(meta_[kFileSchema], *name_);
    leaves_ = parquet_leaves(root_);
    require(!leaves_.empty(), Fault::Data, *name_, ": no columns");
  }

  bool next(Row& row) override {
    while (in_group_ >= group_rows()) {
      if (!columns_.empty()) release_group();
      if (columns_.empty() && group_ >= groups().size()) return false;
      open_group();
    }
    Json value = Json::object();
    for (const auto& child : root_.children) value[child.name] = read(child);
    ++in_group_;
    ++row_;
    row = {std::move(value), {name_, row_, true}};
    return true;
  }
  ReadPosition position() const override { return {row_, 0, 1}; }
  void seek(const ReadPosition& position) override {
    while (row_ < position.row) {
      const int64_t ahead = position.row - row_;
      if (columns_.empty() && group_ < groups().size() && groups()[group_][kGroupRows].number <= ahead) {
        row_ += groups()[group_++][kGroupRows].number;  // a whole group need not be read
      } else {
        Row passed;
        if (!next(passed)) return;
      }
    }
  }

 private:
  std::span<const std::byte> file() const { return {file_.data(), static_cast<size_t>(file_.size())}; }
  const std::vector<ThriftValue>& groups() const { return meta_[kGroups].items; }
  int64_t group_rows() const { return columns_.empty() ? 0 : groups()[group_][kGroupRows].number; }

  void open_group() {
    const std::vector<ThriftValue>& chunks = groups()[group_][kColumns].items;
    require(chunks.size() == leaves_.size(), Fault::Data, *name_, ": row group ", group_ + 1, " has ", chunks.size(),
            " columns, the schema ", leaves_.size());
    in_group_ = 0;
    columns_.reserve(leaves_.size());
    for (size_t i = 0; i < leaves_.size(); ++i) {
      require(!chunks[i].has(1), Fault::Data, *name_, ": a column in another file (", std::string(chunks[i][1].bytes),
              "), which is not read");
      columns_.emplace_back(file(), chunks[i][3], *leaves_[i], *name_);
    }
  }
  void release_group() {
    columns_.clear();
    ++group_;
    in_group_ = 0;
    file_.forget(0, file_.size());  // what has been read need not stay in memory
  }
  ParquetColumn& first(const ParquetNode& node) { return columns_[static_cast<size_t>(node.first_leaf)]; }
  void pass(const ParquetNode& node) {
    for (int i = 0; i < node.leaves; ++i) columns_.at(node.first_leaf + i).advance();
  }

  Json read(const ParquetNode& node) {
    switch (node.kind) {
      case ParquetNode::Kind::Leaf: {
        Json value = first(node).value();
        first(node).advance();
        return value;
      }
      case ParquetNode::Kind::Struct:
        return read_struct(node);
      default:
        return read_items(node);
    }
  }
  Json read_struct(const ParquetNode& node) {
    require(node.leaves > 0, Fault::Data, *name_, ": an empty struct '", node.name, "'");
    if (first(node).def() < node.def) {
      pass(node);
      return nullptr;
    }
    Json value = Json::object();
    for (const auto& child : node.children) value[child.name] = read(child);
    return value;
  }
  Json read_items(const ParquetNode& node) {
    const bool is_map = node.kind == ParquetNode::Kind::Map;
    require(node.leaves > 0, Fault::Data, *name_, ": a list without items' type: '", node.name, "'");
    const int def = first(node).def();
    if (def < node.item_def) {
      pass(node);
      return def < node.def ? Json(nullptr) : is_map ? Json::object() : Json::array();
    }
    Json items = is_map ? Json::object() : Json::array();
    for (int64_t count = 0;; ++count) {
      require(count < kLongestList, Fault::Data, *name_, ": a list of more than ", kLongestList, " items in '",
              node.name, "'");
      if (is_map) {
        const Json key = read(node.children[0]);
        items[key.is_string() ? key.get<std::string>() : json_text(key)] = read(node.children[1]);
      } else {
        items.push_back(read(node.children[0]));
      }
      if (first(node).done() || first(node).rep() != node.rep) return items;
    }
  }

  MappedFile file_;
  std::shared_ptr<const std::string> name_;
  ThriftValue meta_;
  ParquetNode root_;
  std::vector<const ParquetNode*> leaves_;
  std::vector<ParquetColumn> columns_;
  size_t group_ = 0;
  int64_t in_group_ = 0, row_ = 0;
};

}  // namespace

std::unique_ptr<RowReader> open_parquet(const fs::path& path) { return std::make_unique<ParquetRows>(path); }

}  // namespace apus
