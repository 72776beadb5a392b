// SPDX-License-Identifier: Apache-2.0
// A line typed by a person: editing and history on a terminal, a plain line anywhere else.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace apus {

// The text being edited, its cursor and the history. Knows no terminal: keys go in, a picture comes out.
class EditBuffer {
 public:
  enum class Result { Going, Done, End };  // End: Ctrl-D on an empty line, or Ctrl-C

  explicit EditBuffer(const std::vector<std::string>& history) : history_(history), at_(history.size()) {}

  // What a terminal sends: text in UTF-8 (whole or in parts), control characters, escape sequences.
  Result feed(std::string_view bytes);
  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // byte

  // The stretch of the text that fits into `columns`, and the cursor's column in it.
  struct Picture {
    std::string text;
    int cursor = 0;
  };
  Picture picture(int columns) const;

 private:
  Result key(char c);
  bool escape(char c);  // true when c belonged to an escape sequence
  void named(char c, const std::string& number);
  void move_left();
  void move_right();
  void erase(size_t begin, size_t end);
  void recall(size_t entry);

  const std::vector<std::string>& history_;
  size_t at_;               // the entry shown; history_.size(): the line itself
  std::string text_, own_;  // own_: the line itself while an entry is shown
  size_t cursor_ = 0;
  std::string sequence_;  // of an escape sequence under way
};

int text_columns(std::string_view utf8);  // that a terminal needs for it

class LineEditor {
 public:
  LineEditor();
  // The next line without its line end; nothing when the input has ended or Ctrl-C was pressed.
  std::optional<std::string> read(const std::string& prompt);
  void remember(const std::string& line);  // for the arrow keys
  bool terminal() const { return terminal_; }

 private:
  std::optional<std::string> edit(const std::string& prompt);
  std::vector<std::string> history_;
  std::string typed_;  // read, not yet used
  bool terminal_;
};

}  // namespace apus
