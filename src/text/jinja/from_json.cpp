// SPDX-License-Identifier: Apache-2.0
// From JSON to template values, and a JSON parser that keeps the digits of large integers.
#include <nlohmann/json.hpp>

#include "text/jinja/strings.h"
#include "text/jinja/value.h"

namespace apus {

namespace jinja {

namespace {

std::string valid_text(std::string text) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = point_size(text, at);
    if (size == 1 && static_cast<unsigned char>(text[at]) >= 0x80) return encode(decode(text));
    at += size;
  }
  return text;
}

}  // namespace

Value from_json(Heap& heap, const Json& json) {
  heap.budget.work();
  heap.budget.check_stack();
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned: {
      const auto value = json.get<uint64_t>();
      if (value <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(value);
      return parse_integer(heap, std::to_string(value), 10);
    }
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return heap.text(valid_text(json.get_ref<const std::string&>()));
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(heap, item));
      return heap.list(std::move(items));
    }
    case Json::value_t::object: {
      auto* dict = heap.make<DictObject>();
      for (const auto& [key, item] : json.items()) dict->set(heap, heap.text(valid_text(key)), from_json(heap, item));
      return {Kind::Dict, dict};
    }
    case Json::value_t::binary: {
      const auto& bytes = json.get_binary();
      if (!bytes.has_subtype() || bytes.subtype() != kBigInteger || bytes.empty())
        trouble("binary data in the context");
      const std::string digits(bytes.begin(), bytes.end());
      const bool negative = digits[0] == '-';
      return parse_integer(heap, std::string_view(digits).substr(negative), 10, negative);
    }
    default:
      return {};
  }
}

}  // namespace jinja

namespace {

// Builds the document as nlohmann's own parser does, but looks at the spelling of each number.
class ExactBuilder {
 public:
  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) { return put(value); }
  bool number_float(double value, const std::string& spelling) {
    if (spelling.find_first_of(".eE") != std::string::npos) return put(value);
    return put(Json::binary({spelling.begin(), spelling.end()}, kBigInteger));
  }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t& value) { return put(Json::binary(value)); }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool key(std::string& name) {
    keys_.back() = std::move(name);
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) {
    fail(Fault::Data, "not JSON at byte ", position, ": ", error.what());
  }
  Json take() { return std::move(root_); }

 private:
  static constexpr size_t kMaxDepth = 500;

  Json* put(Json value, bool) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(value));
    return &(parent[keys_.back()] = std::move(value));
  }
  template <class T>
  bool put(T&& value) {
    put(Json(std::forward<T>(value)), true);
    return true;
  }
  bool open(Json value) {
    require(open_.size() < kMaxDepth, Fault::Data, "JSON nested deeper than ", kMaxDepth, " levels");
    open_.push_back(put(std::move(value), true));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;  // stable: a container's parent does not grow while it is open
  std::vector<std::string> keys_;
};

}  // namespace

Json parse_exact_json(std::string_view text) {
  ExactBuilder builder;
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace apus
