// SPDX-License-Identifier: Apache-2.0
#include "base/line_editor.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <iostream>

namespace apus {

namespace {

constexpr char kEscape = 27;
constexpr char control(char letter) { return static_cast<char>(letter & 31); }
bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

size_t next_character(std::string_view s, size_t i) {
  if (i < s.size()) ++i;
  while (i < s.size() && continues(s[i])) ++i;
  return i;
}
size_t previous_character(std::string_view s, size_t i) {
  if (i > 0) --i;
  while (i > 0 && continues(s[i])) --i;
  return i;
}

// One character's columns; what is no character takes one, and so does a tab, which is shown as a blank.
int columns_of(std::string_view character) {
  if (character == "\t") return 1;
  utf8proc_int32_t code = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(character.data());
  if (utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(character.size()), &code) <= 0) return 1;
  return std::max(0, utf8proc_charwidth(code));
}

class RawMode {  // of the terminal; the old mode returns whatever happens
 public:
  RawMode() {
    on_ = ::tcgetattr(STDIN_FILENO, &old_) == 0;
    termios raw = old_;
    raw.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
    raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    on_ = on_ && ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
  }
  ~RawMode() {
    if (on_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &old_);
  }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;
  bool on() const { return on_; }

 private:
  termios old_{};
  bool on_ = false;
};

int terminal_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

int text_columns(std::string_view s) {
  int columns = 0;
  for (size_t i = 0; i < s.size();) {
    const size_t end = next_character(s, i);
    columns += columns_of(s.substr(i, end - i));
    i = end;
  }
  return columns;
}

EditBuffer::Result EditBuffer::feed(std::string_view bytes) {
  for (const char c : bytes) {
    if (escape(c)) continue;
    const Result result = key(c);
    if (result != Result::Going) return result;
  }
  return Result::Going;
}

EditBuffer::Result EditBuffer::key(char c) {
  switch (c) {
    case '\r':
    case '\n':
      return Result::Done;
    case control('C'):
      return Result::End;
    case control('D'):
      if (text_.empty()) return Result::End;
      erase(cursor_, next_character(text_, cursor_));
      break;
    case control('A'):
      cursor_ = 0;
      break;
    case control('E'):
      cursor_ = text_.size();
      break;
    case control('B'):
      move_left();
      break;
    case control('F'):
      move_right();
      break;
    case control('P'):
      named('A', "");
      break;
    case control('N'):
      named('B', "");
      break;
    case control('K'):
      erase(cursor_, text_.size());
      break;
    case control('U'):
      erase(0, cursor_);
      break;
    case control('W'): {
      size_t begin = cursor_;
      while (begin > 0 && text_[begin - 1] == ' ') --begin;
      while (begin > 0 && text_[begin - 1] != ' ') --begin;
      erase(begin, cursor_);
      break;
    }
    case control('H'):
    case 127:
      erase(previous_character(text_, cursor_), cursor_);
      break;
    default:
      if (static_cast<unsigned char>(c) < 32 && c != '\t') break;
      text_.insert(cursor_++, 1, c);
  }
  return Result::Going;
}

bool EditBuffer::escape(char c) {
  if (sequence_.empty()) {
    if (c != kEscape) return false;
    sequence_ = c;
    return true;
  }
  sequence_ += c;
  if (sequence_.size() == 2 && (c == '[' || c == 'O')) return true;
  if (sequence_.size() > 2 && sequence_.size() < 8 && (std::isdigit(static_cast<unsigned char>(c)) || c == ';'))
    return true;
  if (sequence_.size() > 2) named(c, sequence_.substr(2, sequence_.size() - 3));
  sequence_.clear();
  return true;
}

void EditBuffer::named(char c, const std::string& number) {
  if (c == 'A' && at_ > 0) return recall(at_ - 1);
  if (c == 'B' && at_ < history_.size()) return recall(at_ + 1);
  if (c == 'C') return move_right();
  if (c == 'D') return move_left();
  if (c == 'H' || (c == '~' && (number == "1" || number == "7"))) cursor_ = 0;
  if (c == 'F' || (c == '~' && (number == "4" || number == "8"))) cursor_ = text_.size();
  if (c == '~' && number == "3") erase(cursor_, next_character(text_, cursor_));
}

void EditBuffer::move_left() { cursor_ = previous_character(text_, cursor_); }
void EditBuffer::move_right() { cursor_ = next_character(text_, cursor_); }

void EditBuffer::erase(size_t begin, size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

void EditBuffer::recall(size_t entry) {
  if (at_ == history_.size()) own_ = text_;
  at_ = entry;
  text_ = entry == history_.size() ? own_ : history_[entry];
  cursor_ = text_.size();
}

EditBuffer::Picture EditBuffer::picture(int columns) const {
  columns = std::max(columns, 4);
  const std::string_view text = text_;
  size_t begin = cursor_, end = cursor_;
  int before = 0, behind = 0;  // columns on either side of the cursor
  while (begin > 0) {
    const size_t previous = previous_character(text, begin);
    const int more = columns_of(text.substr(previous, begin - previous));
    if (before + more >= columns) break;
    begin = previous, before += more;
  }
  while (end < text.size()) {
    const size_t next = next_character(text, end);
    const int more = columns_of(text.substr(end, next - end));
    if (before + behind + more >= columns) break;
    end = next, behind += more;
  }
  std::string shown(text.substr(begin, end - begin));
  std::replace(shown.begin(), shown.end(), '\t', ' ');
  return {std::move(shown), before};
}

LineEditor::LineEditor() : terminal_(::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1) {}

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  if (terminal_) return edit(prompt);
  put(prompt);
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

void LineEditor::remember(const std::string& line) {
  if (!line.empty() && (history_.empty() || history_.back() != line)) history_.push_back(line);
}

std::optional<std::string> LineEditor::edit(const std::string& prompt) {
  const RawMode raw;
  EditBuffer buffer(history_);
  const auto draw = [&] {
    const auto picture = buffer.picture(terminal_width() - text_columns(prompt));
    const int column = text_columns(prompt) + picture.cursor;
    put("\r" + prompt + picture.text + "\x1b[K\r" + (column > 0 ? "\x1b[" + std::to_string(column) + "C" : ""));
  };
  draw();
  for (;;) {
    if (typed_.empty()) {
      char bytes[256];
      const ssize_t count = ::read(STDIN_FILENO, bytes, raw.on() ? sizeof bytes : 1);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return std::nullopt;
      typed_.assign(bytes, static_cast<size_t>(count));
    }
    auto result = EditBuffer::Result::Going;
    // What was pasted behind the end of this line belongs to the next.
    size_t used = 0;
    while (used < typed_.size() && result == EditBuffer::Result::Going) result = buffer.feed({&typed_[used++], 1});
    typed_.erase(0, used);
    draw();
    if (result == EditBuffer::Result::Going) continue;
    put("\r\n");
    if (result == EditBuffer::Result::End) return std::nullopt;
    return buffer.text();
  }
}

}  // namespace apus
