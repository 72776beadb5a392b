// SPDX-License-Identifier: Apache-2.0
// A pushdown automaton for JSON.
#include "text/json_scanner.h"

#include <string_view>

namespace apus {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

JsonScanner::Status JsonScanner::put(char c) {
  value_begins_ = value_ended_ = false;
  switch (state_) {
    case State::Text:
    case State::Escape:
    case State::Hex:
      return put_text(c);
    case State::Plain:
      if (is_digit(c) || (c >= 'a' && c <= 'z') || c == '+' || c == '-' || c == '.' || c == 'E') {
        token_ += c;
        return token_.size() < 400 ? Status::More : Status::Bad;
      }
      if (!plain_is_valid()) return Status::Bad;
      if (open_.empty()) return Status::Bad;  // a bare number has no end of its own; calls are objects
      end_value();
      return is_blank(c) ? Status::More : put_after(c);
    default:
      break;
  }
  if (is_blank(c)) return Status::More;
  switch (state_) {
    case State::FirstItem:
      if (c == ']') return open_.pop_back(), end_value();
      [[fallthrough]];
    case State::Value:
      return begin_value(c);
    case State::FirstKey:
      if (c == '}') return open_.pop_back(), end_value();
      [[fallthrough]];
    case State::Key:
      if (c != '"') return Status::Bad;
      token_.clear();
      is_key_ = true;
      state_ = State::Text;
      return Status::More;
    case State::Colon:
      if (c != ':') return Status::Bad;
      state_ = State::Value;
      return Status::More;
    default:
      return put_after(c);
  }
}

JsonScanner::Status JsonScanner::begin_value(char c) {
  value_begins_ = open_ == "}";
  if (c == '{' || c == '[') {
    if (open_.size() >= kDeepest) return Status::Bad;
    open_ += c == '{' ? '}' : ']';
    state_ = c == '{' ? State::FirstKey : State::FirstItem;
  } else if (c == '"') {
    is_key_ = false;
    state_ = State::Text;
  } else if (c == '-' || is_digit(c) || c == 't' || c == 'f' || c == 'n') {
    token_ = c;
    state_ = State::Plain;
  } else {
    return Status::Bad;
  }
  return Status::More;
}

JsonScanner::Status JsonScanner::end_value() {
  state_ = State::After;
  value_ended_ = open_ == "}";
  return open_.empty() ? Status::Done : Status::More;
}

JsonScanner::Status JsonScanner::put_text(char c) {
  if (state_ == State::Hex) {
    const bool hex = is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
    if (--hex_left_ == 0) state_ = State::Text;
    return hex ? Status::More : Status::Bad;
  }
  if (state_ == State::Escape) {
    if (std::string_view("\"\\/bfnrtu").find(c) == std::string_view::npos) return Status::Bad;
    state_ = c == 'u' ? State::Hex : State::Text;
    hex_left_ = 4;
    if (is_key_) token_ += c;
    return Status::More;
  }
  if (static_cast<unsigned char>(c) < 0x20) return Status::Bad;
  if (c == '\\') {
    state_ = State::Escape;
  } else if (c != '"') {
    if (is_key_) token_ += c;
  } else if (is_key_) {
    if (open_ == "}") member_ = token_;
    state_ = State::Colon;
  } else {
    return end_value();
  }
  return Status::More;
}

JsonScanner::Status JsonScanner::put_after(char c) {
  if (open_.empty()) return Status::Bad;
  if (c == open_.back()) {
    open_.pop_back();
    const bool number_ended = value_ended_;
    const Status status = end_value();
    value_ended_ = value_ended_ || number_ended;
    return status;
  }
  if (c != ',') return Status::Bad;
  state_ = open_.back() == '}' ? State::Key : State::Value;
  return Status::More;
}

bool JsonScanner::plain_is_valid() const {
  if (token_ == "true" || token_ == "false" || token_ == "null") return true;
  size_t at = token_[0] == '-';
  const auto digits = [&] {
    const size_t from = at;
    while (at < token_.size() && is_digit(token_[at])) ++at;
    return at - from;
  };
  const size_t whole_at = at, whole = digits();
  if (whole == 0 || (whole > 1 && token_[whole_at] == '0')) return false;
  if (at < token_.size() && token_[at] == '.') {
    ++at;
    if (digits() == 0) return false;
  }
  if (at < token_.size() && (token_[at] | 0x20) == 'e') {
    ++at;
    if (at < token_.size() && (token_[at] == '+' || token_[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == token_.size();
}

}  // namespace apus
