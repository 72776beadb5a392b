// SPDX-License-Identifier: Apache-2.0
// The lexer: template data up to the next tag, then the tag's tokens.
#include "text/jinja/lexer.h"

#include <array>

#include "text/jinja/strings.h"

namespace apus::jinja {

namespace {

using Type = Token::Type;

std::string normal_newlines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool digit(char c) { return c >= '0' && c <= '9'; }
bool name_char(char c) {
  return digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normal_newlines(source)) {
    if (!text_.empty() && text_.back() == '\n') text_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < text_.size()) read_data();
    add(Type::End, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void problem(std::string message) const { throw Problem{std::move(message), false, line_}; }
  bool looking_at(std::string_view what) const { return std::string_view(text_).substr(at_, what.size()) == what; }
  void add(Type type, std::string_view value) { tokens_.push_back({type, std::string(value), line_}); }
  void advance(size_t to) {
    for (; at_ < to; ++at_) line_ += text_[at_] == '\n';
    line_start_ = at_ > 0 && text_[at_ - 1] == '\n';
  }
  void skip_space() {
    while (at_ < text_.size() && is_space(point_at(text_, at_))) advance(at_ + point_size(text_, at_));
  }

  // Data before the tag at `tag`, with the white space in front of the tag removed where
  // `sign` or lstrip_blocks say so.
  std::string_view trimmed(std::string_view data, char sign, bool variable) const {
    if (sign == '-') return strip_right(data);
    if (sign == '+' || variable) return data;
    const size_t newline = data.rfind('\n');
    const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    if (start == 0 && !line_start_) return data;
    return strip_right(data.substr(start)).empty() ? data.substr(0, start) : data;
  }

  void read_data() {
    size_t tag = at_;
    while (tag + 1 < text_.size() &&
           !(text_[tag] == '{' && (text_[tag + 1] == '{' || text_[tag + 1] == '%' || text_[tag + 1] == '#'))) {
      ++tag;
    }
    if (tag + 1 >= text_.size()) {
      add(Type::Data, std::string_view(text_).substr(at_));
      advance(text_.size());
      return;
    }
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
    const std::string_view data = trimmed(std::string_view(text_).substr(at_, tag - at_), sign, kind == '{');
    if (!data.empty()) add(Type::Data, data);
    advance(tag + 2 + (sign == '-' || sign == '+'));
    if (kind == '#')
      read_comment();
    else if (kind == '%' && begins_raw())
      read_raw();
    else
      read_tag(kind == '{');
  }

  // After an end tag: what `-` and trim_blocks swallow.
  void after_end(char sign, bool trim_newline) {
    if (sign == '-')
      skip_space();
    else if (sign != '+' && trim_newline && at_ < text_.size() && text_[at_] == '\n')
      advance(at_ + 1);
    if (sign != '-') line_start_ = at_ > 0 && text_[at_ - 1] == '\n';
  }

  void read_comment() {
    const size_t end = text_.find("#}", at_);
    if (at_ == text_.size()) return;
    if (end == std::string::npos) problem("Missing end of comment tag");
    const char sign = end > at_ ? text_[end - 1] : ' ';
    advance(end + 2);
    after_end(sign, true);
  }

  bool begins_raw() const {
    size_t at = at_;
    const auto skip = [&] {
      while (at < text_.size() && is_space(point_at(text_, at))) at += point_size(text_, at);
    };
    skip();
    if (text_.compare(at, 3, "raw") != 0) return false;
    at += 3;
    skip();
    return text_.compare(at, 2, "%}") == 0 || text_.compare(at, 3, "-%}") == 0;
  }

  void read_raw() {
    const size_t end = text_.find("%}", at_);
    const bool strip = text_[end - 1] == '-';
    advance(end + 2);
    if (strip) skip_space();
    for (size_t tag = text_.find("{%", at_); tag != std::string::npos; tag = text_.find("{%", tag + 1)) {
      size_t at = tag + 2;
      const char sign = at < text_.size() ? text_[at] : ' ';
      if (sign == '-' || sign == '+') ++at;
      const auto skip = [&] {
        while (at < text_.size() && is_space(point_at(text_, at))) at += point_size(text_, at);
      };
      skip();
      if (text_.compare(at, 6, "endraw") != 0) continue;
      at += 6;
      skip();
      const char end_sign = at < text_.size() ? text_[at] : ' ';
      if (end_sign == '-' || end_sign == '+') ++at;
      if (text_.compare(at, 2, "%}") != 0) continue;
      const std::string_view data = trimmed(std::string_view(text_).substr(at_, tag - at_), sign, false);
      if (!data.empty()) add(Type::Data, data);
      advance(at + 2);
      after_end(end_sign, true);
      return;
    }
    if (at_ < text_.size()) problem("Missing end of raw directive");
  }

  void read_tag(bool variable) {
    add(variable ? Type::VariableBegin : Type::BlockBegin, variable ? "{{" : "{%");
    const std::string_view end = variable ? "}}" : "%}";
    while (at_ < text_.size()) {
      if (brackets_.empty()) {
        const char c = text_[at_];
        const bool sign = c == '-' || (c == '+' && !variable);
        if (std::string_view(text_).substr(at_ + sign, 2) == end) {
          add(variable ? Type::VariableEnd : Type::BlockEnd, end);
          advance(at_ + sign + 2);
          after_end(sign ? c : ' ', !variable);
          return;
        }
      }
      read_token();
    }
    brackets_.clear();
  }

  void read_token() {
    const char c = text_[at_];
    if (is_space(point_at(text_, at_))) return advance(at_ + point_size(text_, at_));
    if (digit(c)) return read_number();
    if (c == '\'' || c == '"') return read_string(c);
    if (name_char(c)) {
      size_t end = at_;
      while (end < text_.size() && name_char(text_[end]) && !is_space(point_at(text_, end)))
        end += point_size(text_, end);
      const std::string_view name = std::string_view(text_).substr(at_, end - at_);
      if (!all_are(name, Class::Identifier)) problem("Invalid character in identifier");
      add(Type::Name, name);
      return advance(end);
    }
    read_operator();
  }

  // Digits with single underscores between them, from `at`; the end.
  size_t digits_end(size_t at, int base = 10) const {
    const auto fits = [&](size_t i) {
      if (i >= text_.size()) return false;
      const char c = text_[i];
      const int value = digit(c)               ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : 99;
      return value < base;
    };
    while (fits(at) || (at < text_.size() && text_[at] == '_' && fits(at + 1))) ++at;
    return at;
  }

  void read_number() {
    const char mark = at_ + 1 < text_.size() ? static_cast<char>(text_[at_ + 1] | 0x20) : ' ';
    const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';  // x.0.1 is two members, not a float
    size_t end = digits_end(at_);
    Type type = Type::Integer;
    if (text_[at_] == '0' && base != 10 && digits_end(at_ + 2, base) > at_ + 2) {
      end = digits_end(at_ + 2, base);
    } else if (!after_dot) {
      size_t tail = end;
      if (tail < text_.size() && text_[tail] == '.' && digits_end(tail + 1) > tail + 1 && digit(text_[tail + 1])) {
        tail = digits_end(tail + 1);
      }
      if (tail < text_.size() && (text_[tail] | 0x20) == 'e') {
        const size_t sign = tail + 1 < text_.size() && (text_[tail + 1] == '+' || text_[tail + 1] == '-');
        if (tail + 1 + sign < text_.size() && digit(text_[tail + 1 + sign])) tail = digits_end(tail + 1 + sign);
      }
      if (tail > end) {
        type = Type::Float;
        end = tail;
      }
    }
    // A leading zero stands alone, unless all are zeros.
    if (type == Type::Integer && base == 10 && text_[at_] == '0') {
      for (end = at_ + 1; end < text_.size() && text_[end] == '0'; ++end) {}
    }
    std::string spelling;
    for (const char c : std::string_view(text_).substr(at_, end - at_)) {
      if (c != '_') spelling += c;
    }
    add(type, spelling);
    advance(end);
  }

  void read_string(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size())
      problem(str("unexpected char ", quote == '\'' ? "\"'\"" : "'\"'", " at ",
                  count_points(std::string_view(text_).substr(0, at_))));
    add(Type::String, unescape(std::string_view(text_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1);
  }

  char32_t read_hex(std::string_view text, size_t& at, size_t digits) const {
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at) {
      const char c = at < text.size() ? static_cast<char>(text[at] | 0x20) : ' ';
      if (!digit(c) && !(c >= 'a' && c <= 'f'))
        problem("truncated escape in a string: \\x wants 2 digits, \\u 4, \\U 8");
      value = value * 16 + static_cast<char32_t>(digit(c) ? c - '0' : c - 'a' + 10);
    }
    if (value > 0x10FFFF) problem("illegal Unicode character in a string");
    return value;
  }

  std::string unescape(std::string_view text) const {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      if (text[at] != '\\' || at + 1 >= text.size()) {
        out += text[at++];
        continue;
      }
      const char c = text[at + 1];
      at += 2;
      constexpr std::string_view kNames = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t which = kNames.find(c); which != std::string_view::npos) {
        out += kMeanings[which];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        char32_t point = read_hex(text, at, c == 'x' ? 2 : c == 'u' ? 4 : 8);
        if (point >= 0xD800 && point < 0xDC00 && text.substr(at, 2) == "\\u") {
          size_t next = at + 2;
          const char32_t low = read_hex(text, next, 4);
          if (low >= 0xDC00 && low < 0xE000) {
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
            at = next;
          }
        }
        append_point(out, point);
      } else if (c >= '0' && c <= '7') {
        char32_t point = static_cast<char32_t>(c - '0');
        for (int i = 0; i < 2 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i) {
          point = point * 8 + static_cast<char32_t>(text[at++] - '0');
        }
        append_point(out, point);
      } else if (c == 'N') {
        problem("\\N{...} escapes are not supported; write \\uXXXX");
      } else if (c != '\n') {  // a backslash at the end of a line joins the lines
        (out += '\\') += c;
      }
    }
    return out;
  }

  void read_operator() {
    constexpr std::array<std::string_view, 26> kOperators = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                                             "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                             ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!looking_at(op)) continue;
      if (op == "(" || op == "[" || op == "{") brackets_ += op == "(" ? ')' : op == "[" ? ']' : '}';
      if (op == ")" || op == "]" || op == "}") {
        if (brackets_.empty()) problem(str("unexpected '", op, "'"));
        if (brackets_.back() != op[0]) problem(str("unexpected '", op, "', expected '", brackets_.back(), "'"));
        brackets_.pop_back();
      }
      add(Type::Operator, op);
      return advance(at_ + op.size());
    }
    problem(str("unexpected char '", std::string_view(text_).substr(at_, point_size(text_, at_)), "' at ",
                count_points(std::string_view(text_).substr(0, at_))));
  }

  std::string text_, brackets_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string Token::describe() const {
  switch (type) {
    case Type::Data:
      return "template data / text";
    case Type::VariableBegin:
      return "begin of print statement";
    case Type::VariableEnd:
      return "end of print statement";
    case Type::BlockBegin:
      return "begin of statement block";
    case Type::BlockEnd:
      return "end of statement block";
    case Type::String:
      return "string";
    case Type::Integer:
      return "integer";
    case Type::Float:
      return "float";
    case Type::End:
      return "end of template";
    default:
      return text;
  }
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace apus::jinja
