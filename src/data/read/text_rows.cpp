// SPDX-License-Identifier: Apache-2.0
// Readers of text files: JSON lines, JSON, CSV and plain text.
#include <algorithm>
#include <array>
#include <cctype>

#include "data/read/byte_source.h"
#include "data/read/reader.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

bool is_blank(int c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

class TextReader : public RowReader {
 public:
  explicit TextReader(const fs::path& path) : text_(path), file_(std::make_shared<const std::string>(path.string())) {}
  ReadPosition position() const override { return {row_, text_.offset(), text_.line()}; }
  void seek(const ReadPosition& position) override {
    row_ = position.row;
    text_.seek(position.offset, position.line);
  }

 protected:
  Origin origin(int64_t line) const { return {file_, line, false}; }
  // The value of one row's text; whatever is wrong with it is a RowError at `line`.
  Json parsed(const std::string& text, int64_t line) const {
    try {
      return parse_json(text, "row");
    } catch (const Error& error) {
      std::string why = error.what();
      if (why.starts_with("row: ")) why.erase(0, 5);
      const std::string from_repair =
          text.find('\'') != std::string::npos || text.find("True") != std::string::npos
              ? " (JSON wants double quotes, true, false and null: was this written with str() instead of json.dumps?)"
              : "";
      throw RowError(origin(line), "", why + from_repair, text.substr(0, 2000));
    }
  }
  Row row_of(Json value, int64_t line) const {
    if (!value.is_object())
      throw RowError(origin(line), "", str("a row must be a JSON object, this is ", value.type_name()),
                     json_text(value).substr(0, 2000));
    return {std::move(value), origin(line)};
  }
  // The next line that holds more than `blanks`, into buffer_, and its number; false at the end.
  bool next_line(const char* blanks, int64_t& line) {
    do {
      line = text_.line();
      if (!text_.get_line(buffer_)) return false;
    } while (buffer_.find_first_not_of(blanks) == std::string::npos);
    ++row_;
    return true;
  }
  TextStream text_;
  int64_t row_ = 0;
  std::shared_ptr<const std::string> file_;
  std::string buffer_;  // the text of one row
};

class JsonLines : public TextReader {
 public:
  using TextReader::TextReader;
  bool next(Row& row) override {
    int64_t line;
    if (!next_line(" \t", line)) return false;
    row = row_of(parsed(buffer_, line), line);
    return true;
  }
};

// [{...}, ...]; {"data": [{...}, ...]} and its like; or objects one after the other.
class JsonFile : public TextReader {
 public:
  explicit JsonFile(const fs::path& path) : TextReader(path) {
    skip_blanks();
    if (text_.peek() == '[') {
      text_.get();
      in_array_ = true;
    } else if (text_.peek() == '{') {
      find_rows_in_object(path);
    }
  }
  bool next(Row& row) override {
    skip_blanks();
    if (in_array_) {
      while (text_.peek() == ',' || is_blank(text_.peek())) text_.get();
      if (text_.peek() == ']') return false;
      require(text_.peek() != TextStream::kEnd, Fault::Data, text_.name(),
              ": the file ends inside its list of rows; it was cut short");
    }
    if (text_.peek() == TextStream::kEnd) return false;
    const int64_t line = text_.line();
    take_value();
    ++row_;
    row = row_of(parsed(buffer_, line), line);
    return true;
  }

 private:
  void skip_blanks() {
    while (is_blank(text_.peek())) text_.get();
  }
  // A complete JSON value into buffer_; only its brackets and quotes are looked at.
  void take_value() {
    buffer_.clear();
    const int64_t line = text_.line();
    int depth = 0;
    bool quoted = false;
    for (int c; (c = text_.peek()) != TextStream::kEnd;) {
      if (!quoted && depth == 0 && !buffer_.empty() && (c == ',' || c == ']' || c == '}' || is_blank(c))) break;
      buffer_ += static_cast<char>(text_.get());
      require(buffer_.size() <= kLongestRow, Fault::Data, text_.name(), ", line ", line, ": a row of more than ",
              kLongestRow >> 20, " MiB");
      if (quoted) {
        if (c == '\\' && text_.peek() != TextStream::kEnd) buffer_ += static_cast<char>(text_.get());
        if (c == '"') quoted = false;
      } else if (c == '"') {
        quoted = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        --depth;
      }
      if (depth <= 0 && !quoted && (c == '}' || c == ']')) break;
    }
    require(depth <= 0 && !quoted, Fault::Data, text_.name(), ": the file ends inside the value that begins at line ",
            line, "; it was cut short");
  }
  // Looks for a member with rows in the first object; none: the object is a row itself, and reading starts at it.
  void find_rows_in_object(const fs::path& path) {
    static const std::array<std::string, 6> names = {"data", "train", "rows", "examples", "instances", "records"};
    const ReadPosition start = position();
    text_.get();
    while (true) {
      while (is_blank(text_.peek()) || text_.peek() == ',') text_.get();
      if (text_.peek() != '"') break;
      take_key();
      const std::string key = buffer_;
      while (is_blank(text_.peek()) || text_.peek() == ':') text_.get();
      const bool wanted = std::find(names.begin(), names.end(), key) != names.end();
      if (wanted && text_.peek() == '[') {
        text_.get();
        skip_blanks();
        if (text_.peek() == '{') {
          in_array_ = true;
          return;
        }
        break;
      }
      take_value();
    }
    text_ = TextStream(path);
    seek(start);
  }
  void take_key() {
    buffer_.clear();
    text_.get();
    for (int c; (c = text_.get()) != '"' && c != TextStream::kEnd && buffer_.size() < 1024;)
      buffer_ += static_cast<char>(c);
  }
  bool in_array_ = false;
};

// RFC 4180: quoted fields may hold delimiters, doubled quotes and newlines. The first record names the columns.
class Csv : public TextReader {
 public:
  Csv(const fs::path& path, char delimiter) : TextReader(path), delimiter_(delimiter) {
    require(take_record(), Fault::Data, path.string(), ": empty; a CSV file begins with the names of its columns");
    columns_ = fields_;
    // As spreadsheets write it where the comma is the decimal point.
    for (const char other : {';', '\t', '|'}) {
      if (columns_.size() > 1) break;
      if (columns_[0].find(other) == std::string::npos) continue;
      try_delimiter(other, path);
    }
    for (const auto& name : columns_)
      require(!name.empty() || columns_.size() == 1, Fault::Data, path.string(), ", line 1: a column without a name");
  }
  bool next(Row& row) override {
    int64_t line;
    do {
      line = text_.line();
      if (!take_record()) return false;
    } while (fields_.size() == 1 && fields_[0].empty() && columns_.size() > 1);  // a blank line
    ++row_;
    if (fields_.size() != columns_.size())
      throw RowError(origin(line), "",
                     str(fields_.size(), " fields, but the first line names ", columns_.size(), " columns"));
    Json value = Json::object();
    for (size_t i = 0; i < columns_.size(); ++i) value[columns_[i]] = fields_[i];
    row = {std::move(value), origin(line)};
    return true;
  }

 private:
  // The first record once more. Kept where it makes several columns of one.
  void try_delimiter(char other, const fs::path& path) {
    const char before = delimiter_;
    const ReadPosition behind = position();
    text_ = TextStream(path), delimiter_ = other;
    take_record();
    if (fields_.size() > 1) {
      columns_ = fields_;
      return;
    }
    text_ = TextStream(path), delimiter_ = before;
    seek(behind);
  }
  bool take_record() {
    fields_.assign(1, std::string());
    if (text_.peek() == TextStream::kEnd) return false;
    const int64_t line = text_.line();
    bool quoted = false;
    for (int c; (c = text_.get()) != TextStream::kEnd;) {
      std::string& field = fields_.back();
      require(field.size() <= kLongestRow && fields_.size() <= 65536, Fault::Data, text_.name(), ", line ", line,
              ": a record without an end");
      if (quoted) {
        if (c == '"' && text_.peek() == '"')
          field += static_cast<char>(text_.get());
        else if (c == '"')
          quoted = false;
        else
          field += static_cast<char>(c);
      } else if (c == '"' && field.empty()) {
        quoted = true;
      } else if (c == static_cast<unsigned char>(delimiter_)) {
        fields_.emplace_back();
      } else if (c == '\n') {
        return true;
      } else if (c != '\r' || text_.peek() != '\n') {
        field += static_cast<char>(c);
      }
    }
    if (quoted) throw RowError(origin(line), "", "a quote that is never closed");
    return true;
  }
  char delimiter_;
  std::vector<std::string> columns_, fields_;
};

class PlainText : public TextReader {
 public:
  using TextReader::TextReader;
  bool next(Row& row) override {
    int64_t line;
    if (!next_line("", line)) return false;
    row = {Json{{"text", buffer_}}, origin(line)};
    return true;
  }
};

}  // namespace

std::unique_ptr<RowReader> open_json_lines(const fs::path& path) { return std::make_unique<JsonLines>(path); }
std::unique_ptr<RowReader> open_json(const fs::path& path) { return std::make_unique<JsonFile>(path); }
std::unique_ptr<RowReader> open_csv(const fs::path& path, char delimiter) {
  return std::make_unique<Csv>(path, delimiter);
}
std::unique_ptr<RowReader> open_text(const fs::path& path) { return std::make_unique<PlainText>(path); }

}  // namespace apus
