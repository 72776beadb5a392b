// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: 8 bytes of length, then JSON {name: {dtype, shape, data_offsets}, __metadata__:
// {..}}. Parsed as events, so that duplicate names are seen and nothing but the header's own entries is ever allocated.
#include "tensor/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace apus {

namespace {

constexpr int64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr size_t kMaxDims = 32;

class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderEvents(const std::string& where) : where_(where) {}

  struct Raw {
    std::optional<std::string> dtype;
    std::optional<std::vector<int64_t>> shape, offsets;
  };
  std::map<std::string, Raw> tensors;
  std::map<std::string, std::string> metadata;

  bool key(string_t& name) override {
    if (depth_ == 1) {
      entry_ = name;
      if (name == "__metadata__" ? std::exchange(saw_metadata_, true) : !tensors.emplace(name, Raw{}).second)
        bad("the name appears twice");
    } else {
      field_ = name;
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (++depth_ > 2 || in_array_) bad("nested too deep");
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_array_ || entry_ == "__metadata__") bad("an array where none belongs");
    auto& list = field_ == "shape" ? raw().shape : field_ == "data_offsets" ? raw().offsets : unknown();
    if (list) bad("'" + field_ + "' is given twice");
    list.emplace();
    in_array_ = &*list;
    return true;
  }
  bool end_array() override { return in_array_ = nullptr, true; }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) bad("a number where none belongs");
    if (value > static_cast<number_unsigned_t>(INT64_MAX) || in_array_->size() >= kMaxDims)
      bad("a number or list out of range");
    in_array_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 2 && entry_ == "__metadata__") return metadata[field_] = value, true;
    if (depth_ != 2 || in_array_ || field_ != "dtype") bad("a string where none belongs");
    raw().dtype = value;
    return true;
  }
  bool null() override { return bad("null"), false; }
  bool boolean(bool) override { return bad("a boolean"), false; }
  bool number_integer(number_integer_t) override { return bad("a negative number"), false; }
  bool number_float(number_float_t, const string_t&) override { return bad("a fraction"), false; }
  bool binary(binary_t&) override { return bad("binary data"), false; }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) override {
    fail(Fault::Model, where_, ": the header is no valid JSON (byte ", at + 8,
         "): the file is damaged or no safetensors file");
  }

 private:
  [[noreturn]] void bad(const std::string& what) {
    fail(Fault::Model, where_, ": header entry '", entry_.substr(0, 200), "': ", what);
  }
  Raw& raw() {
    if (depth_ != 2) bad("a value where an object belongs");
    return tensors[entry_];
  }
  std::optional<std::vector<int64_t>>& unknown() { bad("unknown field '" + field_.substr(0, 200) + "'"); }

  std::string where_, entry_, field_;
  int depth_ = 0;
  bool saw_metadata_ = false;
  std::vector<int64_t>* in_array_ = nullptr;
};

TensorEntry checked(const std::string& name, const HeaderEvents::Raw& raw, int64_t data_begin, int64_t file_size,
                    const std::string& where) {
  const auto in = [&] { return str(where, ": tensor '", name.substr(0, 200), "': "); };
  require(raw.dtype && raw.shape && raw.offsets, Fault::Model, in(), "dtype, shape and data_offsets are all needed");
  const auto type = disk_type(*raw.dtype);
  require(type.has_value(), Fault::Model, in(), "dtype '", raw.dtype->substr(0, 40), "' is not known");
  require(raw.offsets->size() == 2, Fault::Model, in(), "data_offsets must be [begin, end]");
  int64_t bytes = disk_size(*type);
  for (const int64_t dim : *raw.shape)
    require(!__builtin_mul_overflow(bytes, dim, &bytes), Fault::Model, in(), "the shape overflows");
  const int64_t begin = (*raw.offsets)[0], end = (*raw.offsets)[1], room = file_size - data_begin;
  require(begin <= end && end - begin == bytes, Fault::Model, in(), "data_offsets hold ", end - begin,
          " bytes, shape and dtype need ", bytes);
  require(end <= room, Fault::Model, in(), "its data ends at byte ", data_begin + end, " but the file has only ",
          file_size, ": the file is truncated, download it again");
  return {*type, *raw.shape, data_begin + begin, data_begin + end};
}

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::byte* data, int64_t size, const std::string& where) {
  require(size >= 8, Fault::Model, where, ": ", size,
          " bytes are too few for a safetensors file; is the download complete?");
  const std::string_view start(reinterpret_cast<const char*>(data), static_cast<size_t>(std::min<int64_t>(size, 64)));
  require(!start.starts_with("version https://git-lfs"), Fault::Model, where,
          ": this is git-lfs's note of a file, not the file: fetch it with `git lfs pull` in that folder");
  uint64_t length = 0;
  std::memcpy(&length, data, 8);
  require(length <= static_cast<uint64_t>(kMaxHeader), Fault::Model, where, ": header length ", length,
          " is above 100 MB: no safetensors file, or damaged");
  require(static_cast<int64_t>(length) <= size - 8, Fault::Model, where, ": the header needs ", length,
          " bytes but only ", size - 8, " follow: the file is truncated, download it again");
  const char* text = reinterpret_cast<const char*>(data) + 8;
  HeaderEvents events(where);
  nlohmann::json::sax_parse(text, text + length, &events);

  SafetensorsHeader header{{}, std::move(events.metadata)};
  const int64_t data_begin = 8 + static_cast<int64_t>(length);
  std::vector<std::pair<int64_t, const std::string*>> order;
  for (const auto& [name, raw] : events.tensors) {
    const auto it = header.tensors.emplace(name, checked(name, raw, data_begin, size, where)).first;
    order.emplace_back(it->second.begin, &it->first);
  }
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return std::pair(a.first, header.tensors[*a.second].end) < std::pair(b.first, header.tensors[*b.second].end);
  });
  int64_t expected = data_begin;
  for (const auto& [begin, name] : order) {
    require(begin == expected, Fault::Model, where, ": tensor '", name->substr(0, 200), "' ",
            begin < expected ? "overlaps the one before it" : "leaves a hole before it");
    expected = header.tensors[*name].end;
  }
  require(expected == size, Fault::Model, where, ": ", size - expected,
          " bytes after the last tensor belong to nothing");
  return header;
}

}  // namespace apus
