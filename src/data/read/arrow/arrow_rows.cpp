// SPDX-License-Identifier: Apache-2.0
// Reader of Arrow files, both the stream and the file format (what `save_to_disk` and HuggingFace's cache hold).
#include "base/files.h"
#include "data/read/arrow/arrow_batch.h"
#include "data/read/reader.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

enum MessageKind { kSchema = 1, kDictionary = 2, kRecord = 3 };

class ArrowRows : public RowReader {
 public:
  explicit ArrowRows(const fs::path& path) : file_(path), name_(std::make_shared<const std::string>(path.string())) {
    require(file_.size() >= 8, Fault::Data, *name_, ": not a whole Arrow file");
    // The file format is the stream with a frame around it; its footer has the schema again.
    if (bytes().starts_with("ARROW1")) {
      at_ = 8;
      read_footer();
    } else {
      read_message();
    }
    require(!fields_.empty(), Fault::Data, *name_, ": an Arrow file must begin with its schema");
  }

  bool next(Row& row) override {
    while (in_batch_ >= batch_.rows)
      if (!read_message()) return false;
    Json value = Json::object();
    for (const auto& column : batch_.columns)
      value[column.field->name] = arrow_cell(column, in_batch_, dictionaries_, *name_);
    ++in_batch_;
    row = {std::move(value), {name_, ++row_, true}};
    return true;
  }
  ReadPosition position() const override { return {row_, 0, 1}; }
  void seek(const ReadPosition& position) override {
    while (row_ < position.row) {
      const int64_t step = std::min(position.row - row_, batch_.rows - in_batch_);
      row_ += step;
      in_batch_ += step;
      if (in_batch_ >= batch_.rows && row_ < position.row && !read_message()) return;
    }
  }

 private:
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(file_.data()), static_cast<size_t>(file_.size())};
  }

  void take_schema(const FlatTable& schema) {
    fields_ = arrow_schema(schema, *name_);
    arrow_dictionary_fields(fields_, dictionary_fields_);
  }
  void read_footer() {
    const FlatBytes file(bytes(), *name_);
    const bool whole = bytes().size() >= 18 && bytes().ends_with("ARROW1");
    require(whole, Fault::Data, *name_,
            ": not a whole Arrow file (its end mark is missing; was it written or downloaded completely?)");
    const auto length = file.at<uint32_t>(bytes().size() - 10);
    require(length <= bytes().size() - 18, Fault::Data, *name_, ": damaged Arrow footer");
    const FlatBytes footer(file.text(bytes().size() - 10 - length, length), *name_);
    take_schema(FlatTable::root(footer).table(1));
  }
  // One message: its length, the flat buffer, the body. False at the end of the stream.
  bool read_message() {
    if (bytes().size() - at_ < 4) return false;
    const FlatBytes file(bytes(), *name_);
    auto length = file.at<uint32_t>(at_);
    at_ += 4;
    if (length == 0xffffffff) {  // since Arrow 0.15
      length = file.at<uint32_t>(at_);
      at_ += 4;
    }
    if (length == 0) {
      at_ = bytes().size();
      return false;
    }
    const FlatBytes meta(file.text(at_, length), *name_);
    at_ += length;
    const FlatTable message = FlatTable::root(meta);
    const auto body_length = message.value<int64_t>(3);
    require(body_length >= 0, Fault::Data, *name_, ": damaged Arrow message");
    const std::string_view body = file.text(at_, static_cast<size_t>(body_length));
    at_ += body.size();
    take(message.value<uint8_t>(1), message.table(2), body);
    return true;
  }
  void take(int kind, const FlatTable& header, std::string_view body) {
    if (kind == kSchema && fields_.empty()) {
      take_schema(header);
    } else if (kind == kDictionary) {
      const auto id = header.value<int64_t>(0);
      require(header.value<uint8_t>(2) == 0, Fault::Data, *name_, ": a dictionary in parts, which is not read");
      const auto field = dictionary_fields_.find(id);
      require(field != dictionary_fields_.end(), Fault::Data, *name_,
              ": a dictionary that no column uses; the file is damaged");
      dictionaries_[id] = arrow_batch(header.table(1), body, fields_, field->second, *name_);
    } else if (kind == kRecord) {
      if (at_ > body.size()) file_.forget(0, static_cast<int64_t>(at_ - body.size()));
      batch_ = arrow_batch(header, body, fields_, nullptr, *name_);
      in_batch_ = 0;
    }
  }

  MappedFile file_;
  std::shared_ptr<const std::string> name_;
  std::vector<ArrowField> fields_;
  std::map<int64_t, const ArrowField*> dictionary_fields_;
  ArrowDictionaries dictionaries_;
  ArrowBatch batch_;
  size_t at_ = 0;
  int64_t in_batch_ = 0, row_ = 0;
};

}  // namespace

std::unique_ptr<RowReader> open_arrow(const fs::path& path) { return std::make_unique<ArrowRows>(path); }

}  // namespace apus
