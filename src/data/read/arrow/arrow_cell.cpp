// SPDX-License-Identifier: Apache-2.0
// The cells of Arrow columns as JSON values.
#include <algorithm>
#include <cmath>

#include "data/read/arrow/arrow_batch.h"
#include "data/read/cell.h"

namespace apus {

namespace {

template <class T>
T raw_at(std::string_view data, int64_t index) {
  T value;
  std::memcpy(&value, data.data() + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

int64_t integer_at(std::string_view data, int64_t index, int bits, bool is_signed) {
  switch (bits) {
    case 8:
      return is_signed ? raw_at<int8_t>(data, index) : raw_at<uint8_t>(data, index);
    case 16:
      return is_signed ? raw_at<int16_t>(data, index) : raw_at<uint16_t>(data, index);
    case 32:
      return is_signed ? raw_at<int32_t>(data, index)
                       : int64_t{raw_at<uint32_t>(data, index)};  // no common type of both
    default:
      return raw_at<int64_t>(data, index);
  }
}

bool bit_at(std::string_view bits, int64_t index) {
  return static_cast<uint8_t>(bits[static_cast<size_t>(index / 8)]) >> (index % 8) & 1;
}

// Begin and end of item `index` by the offsets, checked against what they point into.
std::pair<int64_t, int64_t> range(const ArrowColumn& c, int64_t index, bool large, int64_t limit,
                                  std::string_view where) {
  const int64_t begin = large ? raw_at<int64_t>(c.offsets, index) : raw_at<int32_t>(c.offsets, index);
  const int64_t end = large ? raw_at<int64_t>(c.offsets, index + 1) : raw_at<int32_t>(c.offsets, index + 1);
  require(begin >= 0 && begin <= end && end <= limit, Fault::Data, where, ": damaged Arrow batch (offsets)");
  return {begin, end};
}

Json number(const ArrowColumn& c, int64_t index) {
  const ArrowField& f = *c.field;
  if (f.type == ArrowType::Int) {
    const int64_t v = integer_at(c.data, index, f.bits, f.is_signed);
    return f.is_signed ? Json(v) : Json(static_cast<uint64_t>(v));
  }
  if (f.bits == 16) return half_to_double(raw_at<uint16_t>(c.data, index));
  return f.bits == 32 ? Json(raw_at<float>(c.data, index)) : Json(raw_at<double>(c.data, index));
}

Json date(const ArrowColumn& c, int64_t index) {
  const int64_t v = integer_at(c.data, index, c.field->bits, true);
  return c.field->bits == 32 ? date_text(v) : stamp_text(v, 1000);
}

Json fixed(const ArrowColumn& c, int64_t index) {
  const auto width = static_cast<size_t>(c.field->width);
  std::string raw(c.data.substr(static_cast<size_t>(index) * width, width));
  if (c.field->type != ArrowType::Decimal) return bytes_text(raw);
  std::reverse(raw.begin(), raw.end());  // Arrow keeps decimals little-endian
  return decimal_value(raw, c.field->scale);
}

}  // namespace

Json arrow_cell(const ArrowColumn& c, int64_t index, const ArrowDictionaries& dictionaries, std::string_view where) {
  const ArrowField& f = *c.field;
  if (f.type == ArrowType::Null && !c.indices) return nullptr;
  if (!c.valid.empty() && !bit_at(c.valid, index)) return nullptr;
  if (c.indices) {
    const auto it = dictionaries.find(*f.dictionary);
    require(it != dictionaries.end(), Fault::Data, where, ": column '", f.name,
            "' has no dictionary; the file is damaged");
    const int64_t entry = integer_at(c.data, index, f.index_bits, f.index_signed);
    require(entry >= 0 && entry < it->second.rows, Fault::Data, where, ": column '", f.name,
            "': a value beyond its dictionary");
    return arrow_cell(it->second.columns[0], entry, {}, where);
  }
  switch (f.type) {
    case ArrowType::Bool:
      return bit_at(c.data, index);
    case ArrowType::Int:
    case ArrowType::Float:
      return number(c, index);
    case ArrowType::Date:
      return date(c, index);
    case ArrowType::Time:
      return clock_text(integer_at(c.data, index, f.bits, true), f.per_second);
    case ArrowType::Timestamp:
      return stamp_text(integer_at(c.data, index, 64, true), f.per_second);
    case ArrowType::Duration:
      return integer_at(c.data, index, 64, true);
    case ArrowType::Utf8:
    case ArrowType::LargeUtf8:
    case ArrowType::Binary:
    case ArrowType::LargeBinary: {
      const bool large = f.type == ArrowType::LargeUtf8 || f.type == ArrowType::LargeBinary;
      const auto [begin, end] = range(c, index, large, static_cast<int64_t>(c.data.size()), where);
      const std::string_view raw = c.data.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
      const bool text = f.type == ArrowType::Utf8 || f.type == ArrowType::LargeUtf8;
      return text ? std::string(raw) : bytes_text(raw);
    }
    case ArrowType::List:
    case ArrowType::LargeList:
    case ArrowType::FixedList: {
      const auto [begin, end] = f.type == ArrowType::FixedList
                                    ? std::pair<int64_t, int64_t>(index * f.width, (index + 1) * f.width)
                                    : range(c, index, f.type == ArrowType::LargeList, c.children[0].length, where);
      Json items = Json::array();
      for (int64_t i = begin; i < end; ++i) items.push_back(arrow_cell(c.children[0], i, dictionaries, where));
      return items;
    }
    case ArrowType::Map: {
      const auto [begin, end] = range(c, index, false, c.children[0].length, where);
      require(c.children[0].children.size() == 2, Fault::Data, where, ": a map without key and value: '", f.name, "'");
      Json items = Json::object();
      for (int64_t i = begin; i < end; ++i) {
        const Json key = arrow_cell(c.children[0].children[0], i, dictionaries, where);
        items[key.is_string() ? key.get<std::string>() : json_text(key)] =
            arrow_cell(c.children[0].children[1], i, dictionaries, where);
      }
      return items;
    }
    case ArrowType::Struct: {
      Json value = Json::object();
      for (const auto& child : c.children) value[child.field->name] = arrow_cell(child, index, dictionaries, where);
      return value;
    }
    default:
      return fixed(c, index);
  }
}

}  // namespace apus
