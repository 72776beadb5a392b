// SPDX-License-Identifier: Apache-2.0
#include "data/read/arrow/arrow_batch.h"

#include "base/error.h"
#include "data/read/parquet/compression.h"

namespace apus {

namespace {

constexpr int64_t kMostRows = int64_t{1} << 31;

int64_t ticks_per_second(int unit) {
  static const int64_t ticks[] = {1, 1000, 1000000, 1000000000};
  return ticks[unit & 3];
}

ArrowField field_of(const FlatTable& table, std::string_view where, int depth) {
  require(depth < 64, Fault::Data, where, ": schema nested more than 64 deep");
  ArrowField field;
  field.name = table.text(0);
  const int type = table.value<uint8_t>(2);
  field.type = static_cast<ArrowType>(type);
  const FlatTable t = table.table(3);
  switch (field.type) {
    case ArrowType::Int:
      field.bits = t.value<int32_t>(0);
      field.is_signed = t.value<uint8_t>(1) != 0;
      break;
    case ArrowType::Float:
      field.bits = 16 << (t.value<int16_t>(0) & 3);
      break;
    case ArrowType::Decimal:
      field.scale = t.value<int32_t>(1);
      field.width = t.value<int32_t>(2, 128) / 8;
      break;
    case ArrowType::Date:
      field.bits = t.value<int16_t>(0, 1) == 0 ? 32 : 64;
      break;
    case ArrowType::Time:
      field.per_second = ticks_per_second(t.value<int16_t>(0, 1));
      field.bits = t.value<int32_t>(1, 32);
      break;
    case ArrowType::Timestamp:
      field.per_second = ticks_per_second(t.value<int16_t>(0));
      field.bits = 64;
      break;
    case ArrowType::Duration:
      field.bits = 64;
      break;
    case ArrowType::FixedBinary:
    case ArrowType::FixedList:
      field.width = t.value<int32_t>(0);
      break;
    case ArrowType::Interval:
    case ArrowType::Union:
    case ArrowType::None:
      fail(Fault::Data, where, ": column '", field.name, "' is an interval or a union, which is not read");
    default:
      require(type <= static_cast<int>(ArrowType::LargeList), Fault::Data, where, ": column '", field.name,
              "' has type ", type, ", which is not read");
  }
  require(field.width >= 0 && field.width <= 1 << 20 &&
              (field.bits == 0 || field.bits == 8 || field.bits == 16 || field.bits == 32 || field.bits == 64),
          Fault::Data, where, ": column '", field.name, "' has a bad width");
  if (const FlatTable dictionary = table.table(4)) {
    field.dictionary = dictionary.value<int64_t>(0);
    const FlatTable index = dictionary.table(1);
    field.index_bits = index ? index.value<int32_t>(0) : 32;
    field.index_signed = !index || index.value<uint8_t>(1) != 0;
  }
  const FlatVector children = table.vector(5);
  for (size_t i = 0; i < children.size(); ++i) field.children.push_back(field_of(children.table(i), where, depth + 1));
  const bool nested = field.type == ArrowType::List || field.type == ArrowType::LargeList ||
                      field.type == ArrowType::FixedList || field.type == ArrowType::Map;
  require(!nested || field.children.size() == 1, Fault::Data, where, ": a list without items' type: '", field.name,
          "'");
  return field;
}

// Takes nodes and buffers in the order Arrow lays them down: depth first.
class Layout {
 public:
  Layout(const FlatTable& record, std::string_view body, ArrowBatch& batch, std::string_view where)
      : nodes_(record.vector(1)), buffers_(record.vector(2)), body_(body), batch_(batch), where_(where) {
    if (const FlatTable compression = record.table(3)) {
      require(compression.value<int8_t>(0) == 1, Fault::Data, where_,
              ": compressed with LZ4 frames, which are not read; write it uncompressed or with zstd");
      compressed_ = true;
    }
  }

  ArrowColumn column(const ArrowField& field, bool as_values) {
    ArrowColumn c;
    c.field = &field;
    require(node_ < nodes_.size(), Fault::Data, where_, ": damaged Arrow batch");
    c.length = nodes_.number(node_, 16, 0);
    const int64_t nulls = nodes_.number(node_++, 16, 8);
    require(c.length >= 0 && c.length <= kMostRows, Fault::Data, where_, ": damaged Arrow batch");
    c.indices = field.dictionary && !as_values;
    if (field.type == ArrowType::Null && !c.indices) return c;
    c.valid = buffer();
    if (nulls == 0) c.valid = {};
    need(c.valid, c.valid.empty() ? 0 : (c.length + 7) / 8);
    if (c.indices) {
      c.data = buffer();
      need(c.data, c.length * (field.index_bits / 8));
      return c;
    }
    contents(c, field);
    return c;
  }

 private:
  void contents(ArrowColumn& c, const ArrowField& field) {
    switch (field.type) {
      case ArrowType::Bool:
        c.data = buffer();
        return need(c.data, (c.length + 7) / 8);
      case ArrowType::Binary:
      case ArrowType::Utf8:
      case ArrowType::LargeBinary:
      case ArrowType::LargeUtf8: {
        const bool large = field.type == ArrowType::LargeBinary || field.type == ArrowType::LargeUtf8;
        c.offsets = buffer();
        if (c.length > 0) need(c.offsets, (c.length + 1) * (large ? 8 : 4));
        c.data = buffer();
        return;
      }
      case ArrowType::List:
      case ArrowType::LargeList:
      case ArrowType::Map:
        c.offsets = buffer();
        if (c.length > 0) need(c.offsets, (c.length + 1) * (field.type == ArrowType::LargeList ? 8 : 4));
        c.children.push_back(column(field.children[0], false));
        return;
      case ArrowType::FixedList:
        c.children.push_back(column(field.children[0], false));
        require(c.children[0].length >= c.length * field.width, Fault::Data, where_, ": damaged Arrow batch");
        return;
      case ArrowType::Struct:
        for (const auto& child : field.children) {
          c.children.push_back(column(child, false));
          require(c.children.back().length >= c.length, Fault::Data, where_, ": damaged Arrow batch");
        }
        return;
      default:
        c.data = buffer();
        need(c.data, c.length * (field.width ? field.width : field.bits / 8));
    }
  }
  void need(std::string_view buffer, int64_t bytes) const {
    require(static_cast<int64_t>(buffer.size()) >= bytes, Fault::Data, where_,
            ": damaged Arrow batch (a buffer is too short)");
  }
  std::string_view buffer() {
    require(buffer_ < buffers_.size(), Fault::Data, where_, ": damaged Arrow batch");
    const int64_t offset = buffers_.number(buffer_, 16, 0), length = buffers_.number(buffer_, 16, 8),
                  size = static_cast<int64_t>(body_.size());
    ++buffer_;
    require(offset >= 0 && length >= 0 && offset <= size && length <= size - offset, Fault::Data, where_,
            ": damaged Arrow batch (a buffer lies outside)");
    const std::string_view raw = body_.substr(static_cast<size_t>(offset), static_cast<size_t>(length));
    if (!compressed_ || raw.empty()) return raw;
    require(raw.size() >= 8, Fault::Data, where_, ": damaged Arrow batch");
    int64_t full;
    std::memcpy(&full, raw.data(), 8);
    if (full == -1) return raw.substr(8);  // this one did not shrink and stands as it is
    require(full >= 0, Fault::Data, where_, ": damaged Arrow batch");
    const auto* bytes = reinterpret_cast<const std::byte*>(raw.data());
    return batch_.owned.emplace_back(
        decompress(Codec::Zstd, {bytes + 8, raw.size() - 8}, static_cast<size_t>(full), where_));
  }

  FlatVector nodes_, buffers_;
  std::string_view body_;
  ArrowBatch& batch_;
  std::string_view where_;
  size_t node_ = 0, buffer_ = 0;
  bool compressed_ = false;
};

}  // namespace

std::vector<ArrowField> arrow_schema(const FlatTable& schema, std::string_view where) {
  require(schema.value<int16_t>(0) == 0, Fault::Data, where, ": a big-endian Arrow file, which is not read");
  std::vector<ArrowField> fields;
  const FlatVector list = schema.vector(1);
  for (size_t i = 0; i < list.size(); ++i) fields.push_back(field_of(list.table(i), where, 0));
  require(!fields.empty(), Fault::Data, where, ": no columns");
  return fields;
}

void arrow_dictionary_fields(const std::vector<ArrowField>& fields, std::map<int64_t, const ArrowField*>& found) {
  for (const auto& field : fields) {
    if (field.dictionary) found[*field.dictionary] = &field;
    arrow_dictionary_fields(field.children, found);
  }
}

ArrowBatch arrow_batch(const FlatTable& record, std::string_view body, const std::vector<ArrowField>& fields,
                       const ArrowField* values_of, std::string_view where) {
  ArrowBatch batch;
  batch.rows = record.value<int64_t>(0);
  Layout layout(record, body, batch, where);
  if (values_of) {
    batch.columns.push_back(layout.column(*values_of, true));
  } else {
    for (const auto& field : fields) batch.columns.push_back(layout.column(field, false));
  }
  for (const auto& column : batch.columns)
    require(batch.rows >= 0 && column.length >= batch.rows, Fault::Data, where,
            ": damaged Arrow batch (a column is shorter than the batch)");
  return batch;
}

}  // namespace apus
