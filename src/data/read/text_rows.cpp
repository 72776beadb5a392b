// SPDX-License-Identifier: Apache-2.0
// Readers of text files: JSON lines, JSON, CSV and plain text.
#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "data/read/byte_source.h"
#include "data/read/reader.h"
#include "text/unicode.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr const char* kSayEncoding =
    "save the file as UTF-8, or say how it is written: --encoding latin-1, gbk, utf-16, ...";

// The first place from `at` on where a character begins.
size_t unicode_start(const std::string& text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
  return at;
}

bool is_blank(int c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

class TextReader : public RowReader {
 public:
  TextReader(const fs::path& path, const std::string& encoding)
      : path_(path),
        encoding_(encoding),
        text_(path, encoding),
        file_(std::make_shared<const std::string>(path.string())) {}
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
  void require_utf8(const std::string& text, int64_t line, const std::string& column) const {
    const size_t good = unicode::valid_prefix(text);
    if (good == text.size()) return;
    static constexpr char digits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(text[good]);
    throw RowError(
        origin(line), column,
        str("no UTF-8: the byte 0x", digits[byte >> 4], digits[byte & 15], " after \"",
            text.substr(0, good).substr(good > 40 ? unicode_start(text, good - 40) : 0), "\"; ", kSayEncoding));
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
  void start_again() { text_ = TextStream(path_, encoding_); }
  const fs::path path_;
  const std::string encoding_;
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
  JsonFile(const fs::path& path, const std::string& encoding) : TextReader(path, encoding) {
    skip_blanks();
    if (text_.peek() == '[') {
      text_.get();
      in_list_ = true;
    } else if (text_.peek() == '{') {
      find_rows_in_object();
    }
  }
  bool next(Row& row) override {
    if (end_ || !to_next_row()) return false;
    const int64_t line = text_.line();
    take_value();
    ++row_;
    row = row_of(parsed(buffer_, line), line);
    return true;
  }
  ReadPosition position() const override { return end_ ? *end_ : TextReader::position(); }

 private:
  void skip_blanks() {
    while (is_blank(text_.peek())) text_.get();
  }
  template <class... P>
  [[noreturn]] void damaged(const P&... why) {
    fail(Fault::Data, text_.name(), ", line ", text_.line(), ": ", why...,
         "; mend the file, or write one row per line (.jsonl)");
  }
  // To the first character of a row; false where there is none. A list has one comma between two rows and nothing but
  // blanks behind it: what looks otherwise has lost rows, or has some that would not be read.
  bool to_next_row() {
    skip_blanks();
    if (!in_list_) return text_.peek() != TextStream::kEnd;
    if (text_.peek() == ']') {
      end_ = TextReader::position();
      text_.get();
      in_object_ ? read_over_members() : expect_end();
      return false;
    }
    if (row_ > 0 && text_.peek() == ',') {
      text_.get();
      skip_blanks();
      if (text_.peek() == ',' || text_.peek() == ']') damaged("a comma too many in the list of rows");
    } else if (row_ > 0 && text_.peek() != TextStream::kEnd) {
      damaged("a comma is missing between two rows");
    } else if (text_.peek() == ',') {
      damaged("a comma before the first row");
    }
    require(text_.peek() != TextStream::kEnd, Fault::Data, text_.name(),
            ": the file ends inside its list of rows; it was cut short");
    return true;
  }
  void expect_end() {
    skip_blanks();
    if (text_.peek() != TextStream::kEnd) damaged("there is more behind the end of the list of rows");
  }
  // What stands behind the rows in their object: other members, its end, and no second list of rows.
  void read_over_members() {
    while (true) {
      skip_blanks();
      const int c = text_.get();
      if (c == '}') return expect_end();
      skip_blanks();
      if (c != ',' || text_.peek() != '"') damaged("the object around the list of rows goes on wrongly");
      take_key();
      const std::string key = buffer_;
      skip_blanks();
      if (text_.get() != ':') damaged("a colon is missing behind \"", key, "\"");
      skip_blanks();
      take_value();
      if (holds_rows(key) && buffer_.starts_with("[") && buffer_.find('{') != std::string::npos)
        damaged("rows in '", key, "' too, besides those of '", rows_key_, "'");
    }
  }
  static bool holds_rows(const std::string& key) {
    static const std::array<std::string, 6> names = {"data", "train", "rows", "examples", "instances", "records"};
    return std::find(names.begin(), names.end(), key) != names.end();
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
  void find_rows_in_object() {
    const ReadPosition start = position();
    text_.get();
    while (true) {
      while (is_blank(text_.peek()) || text_.peek() == ',') text_.get();
      if (text_.peek() != '"') break;
      take_key();
      const std::string key = buffer_;
      while (is_blank(text_.peek()) || text_.peek() == ':') text_.get();
      if (holds_rows(key) && text_.peek() == '[') {
        text_.get();
        skip_blanks();
        if (text_.peek() == '{') {
          in_list_ = in_object_ = true;
          rows_key_ = key;
          return;
        }
        break;
      }
      take_value();
    }
    start_again();
    seek(start);
  }
  void take_key() {
    buffer_.clear();
    text_.get();
    for (int c; (c = text_.get()) != '"' && c != TextStream::kEnd && buffer_.size() < 1024;)
      buffer_ += static_cast<char>(c);
  }
  bool in_list_ = false, in_object_ = false;
  std::string rows_key_;
  std::optional<ReadPosition> end_;  // of the list, once it is reached
};

// RFC 4180: quoted fields may hold delimiters, doubled quotes and newlines. The first record names the columns.
class Csv : public TextReader {
 public:
  Csv(const fs::path& path, char delimiter, const std::string& encoding)
      : TextReader(path, encoding), delimiter_(delimiter) {
    require(take_record(), Fault::Data, path.string(), ": empty; a CSV file begins with the names of its columns");
    columns_ = fields_;
    // As spreadsheets write it where the comma is the decimal point.
    for (const char other : {';', '\t', '|'}) {
      if (columns_.size() > 1) break;
      if (columns_[0].find(other) == std::string::npos) continue;
      try_delimiter(other);
    }
    for (const auto& name : columns_)
      require(!name.empty() || columns_.size() == 1, Fault::Data, path.string(), ", line 1: a column without a name");
    for (const auto& name : columns_)
      if (unicode::valid_prefix(name) != name.size())
        fail(Fault::Data, path.string(), ", line 1: the names of the columns are no UTF-8; ", kSayEncoding);
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
    for (size_t i = 0; i < columns_.size(); ++i) {
      require_utf8(fields_[i], line, columns_[i]);
      value[columns_[i]] = fields_[i];
    }
    row = {std::move(value), origin(line)};
    return true;
  }

 private:
  // The first record once more. Kept where it makes several columns of one.
  void try_delimiter(char other) {
    const char before = delimiter_;
    const ReadPosition behind = position();
    start_again(), delimiter_ = other;
    take_record();
    if (fields_.size() > 1) {
      columns_ = fields_;
      return;
    }
    start_again(), delimiter_ = before;
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
    require_utf8(buffer_, line, "text");
    row = {Json{{"text", buffer_}}, origin(line)};
    return true;
  }
};

}  // namespace

std::unique_ptr<RowReader> open_json_lines(const fs::path& path, const std::string& encoding) {
  return std::make_unique<JsonLines>(path, encoding);
}
std::unique_ptr<RowReader> open_json(const fs::path& path, const std::string& encoding) {
  return std::make_unique<JsonFile>(path, encoding);
}
std::unique_ptr<RowReader> open_csv(const fs::path& path, char delimiter, const std::string& encoding) {
  return std::make_unique<Csv>(path, delimiter, encoding);
}
std::unique_ptr<RowReader> open_text(const fs::path& path, const std::string& encoding) {
  return std::make_unique<PlainText>(path, encoding);
}

}  // namespace apus
