// SPDX-License-Identifier: Apache-2.0
// Text as Python sees it: code points, Unicode white space, case and classes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace apus::jinja {

// Bytes of the code point at `at`; 1 where the text is not UTF-8.
size_t point_size(std::string_view text, size_t at);
char32_t point_at(std::string_view text, size_t at);
void append_point(std::string& out, char32_t point);
std::u32string decode(std::string_view text);
std::string encode(std::u32string_view points);
int64_t count_points(std::string_view text);
size_t byte_offset(std::string_view text, int64_t point);  // of the point-th code point; the end if there are fewer
std::vector<std::string> split_points(std::string_view text);

bool is_space(char32_t point);  // str.isspace of one character
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip_left(std::string_view text, std::string_view any_of);
std::string_view strip_right(std::string_view text, std::string_view any_of);
size_t find_bytes(std::string_view text, std::string_view wanted, size_t from);  // linear time; npos
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);
std::string swap_case(std::string_view text);
std::string case_fold(std::string_view text);

enum class Class { Alpha, Digit, Decimal, Numeric, Alnum, Space, Upper, Lower, Title, Identifier, Printable, Ascii };
bool all_are(std::string_view text, Class what);  // str.isalpha and its kin
bool is_printable(char32_t point);                // what repr() shows as it is
bool is_word(char32_t point);                     // \w

std::string escape_html(std::string_view text);

}  // namespace apus::jinja
