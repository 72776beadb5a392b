// SPDX-License-Identifier: Apache-2.0
#include "data/read/parquet/column.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "data/read/cell.h"
#include "data/read/parquet/encodings.h"
#include "text/unicode.h"

namespace apus {

namespace {

constexpr int64_t kMostValues = int64_t{1} << 25;  // of one page; writers keep to some ten thousand

enum Encoding {
  kPlain = 0,
  kPlainDictionary = 2,
  kRle = 3,
  kDelta = 5,
  kDeltaLength = 6,
  kDeltaStrings = 7,
  kRleDictionary = 8,
  kByteStreamSplit = 9
};
// Fields of ColumnMetaData, and of PageHeader with what it holds.
enum Chunk { kCodec = 4, kValues = 5, kCompressedTotal = 7, kDataOffset = 9, kDictionaryOffset = 11 };
enum Header { kPageType = 1, kFull = 2, kCompressed = 3, kV1 = 5, kDictionaryPage = 7, kV2 = 8 };

constexpr size_t kForgotten = 100;

int bits_for(int level) { return std::bit_width(static_cast<unsigned>(level)); }

size_t entries_of(const ThriftValue& header, const std::string& where) {
  const int64_t count = header[1].number;
  require(count >= 0 && count <= kMostValues, Fault::Data, where, ": damaged page (", count, " values)");
  return static_cast<size_t>(count);
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_real(const ParquetNode& leaf) { return leaf.physical == Physical::Float || leaf.physical == Physical::Double; }
bool is_text(const ParquetNode& leaf) {
  return leaf.physical == Physical::Bytes || leaf.physical == Physical::Fixed || leaf.physical == Physical::Int96;
}

// UTF-8 without control characters, of which bytes of other things always have some.
bool reads_as_text(std::string_view raw) {
  const auto control = [](char c) {
    return static_cast<unsigned char>(c) < ' ' && c != '\t' && c != '\n' && c != '\r';
  };
  return std::none_of(raw.begin(), raw.end(), control) && unicode::valid_prefix(raw) == raw.size();
}

int64_t per_second(Meaning meaning) {
  switch (meaning) {
    case Meaning::StampMs:
    case Meaning::TimeMs:
      return 1000;
    case Meaning::StampUs:
    case Meaning::TimeUs:
      return 1000000;
    default:
      return 1000000000;
  }
}

// Julian day and nanoseconds of the day, as Impala and Spark write. Of years far away Spark's sum of microseconds has
// wrapped around, which shows in the nanoseconds; the difference wraps back.
std::string int96_text(std::string_view raw) {
  int64_t nanos;
  int32_t day;
  std::memcpy(&nanos, raw.data(), 8);
  std::memcpy(&day, raw.data() + 8, 4);
  constexpr int64_t kEpoch = 2440588, kDay = 86400;  // the Julian day of 1970-01-01; seconds
  const int64_t days = static_cast<int64_t>(day) - kEpoch;
  if (nanos >= 0 && nanos < kDay * 1000000000) return date_text(days) + "T" + clock_text(nanos, 1000000000);
  const uint64_t micros = static_cast<uint64_t>(days) * (kDay * 1000000) + static_cast<uint64_t>(nanos / 1000);
  return stamp_text(static_cast<int64_t>(micros), 1000000);
}

}  // namespace

ParquetColumn::ParquetColumn(std::span<const std::byte> file, const ThriftValue& chunk, const ParquetNode& leaf,
                             const std::string& where)
    : file_(file),
      leaf_(leaf),
      where_(where + ", column '" + leaf.name + "'"),
      codec_(static_cast<Codec>(chunk[kCodec].number)),
      total_(chunk[kValues].number) {
  int64_t start = chunk[kDataOffset].number;
  if (chunk.has(kDictionaryOffset) && chunk[kDictionaryOffset].number > 0)
    start = std::min(start, chunk[kDictionaryOffset].number);
  const int64_t bytes = chunk[kCompressedTotal].number, size = static_cast<int64_t>(file.size());
  if (total_ == 0) return;  // a column without a value need not lie anywhere
  require(start >= 4 && bytes >= 0 && start <= size && bytes <= size - start, Fault::Data, where_,
          ": it lies outside of the file; the file is damaged");
  next_page_ = static_cast<size_t>(start);
  // Old writers forgot the header of the dictionary in the size.
  end_ = std::min(file.size(), next_page_ + static_cast<size_t>(bytes) + kForgotten);
}

void ParquetColumn::ensure() {
  while (at_ >= in_page_) load_page();
}

void ParquetColumn::advance() {
  ensure();
  const bool defined = def_.empty() || static_cast<int>(def_[at_]) == leaf_.max_def;
  if (defined) ++value_at_;
  ++at_;
}

void ParquetColumn::load_page() {
  require(seen_ < total_ && next_page_ < end_, Fault::Data, where_, ": it ends too early; the file is damaged");
  size_t used = 0;
  const ThriftValue header = parse_thrift(file_.subspan(next_page_, end_ - next_page_), used, where_);
  const int64_t size = header[kCompressed].number;
  next_page_ += used;
  require(size >= 0 && static_cast<size_t>(size) <= end_ - next_page_, Fault::Data, where_,
          ": a page beyond its column; the file is damaged");
  const auto body = file_.subspan(next_page_, static_cast<size_t>(size));
  next_page_ += static_cast<size_t>(size);
  switch (header[kPageType].number) {
    case 0:
      return load_v1(header, body);
    case 2:
      return load_dictionary(header, body);
    case 3:
      return load_v2(header, body);
    default:
      return;  // an index page holds no values
  }
}

void ParquetColumn::load_dictionary(const ThriftValue& header, std::span<const std::byte> body) {
  dictionary_page_ = decompress(codec_, body, static_cast<size_t>(header[kFull].number), where_);
  dictionary_ = {};
  plain(dictionary_, dictionary_page_, entries_of(header[kDictionaryPage], where_));
  has_dictionary_ = true;
}

void ParquetColumn::start_page(size_t entries) {
  at_ = value_at_ = 0;
  in_page_ = entries;
  seen_ += static_cast<int64_t>(entries);
  def_.clear();
  rep_.clear();
}

void ParquetColumn::load_v1(const ThriftValue& header, std::span<const std::byte> body) {
  const ThriftValue& h = header[kV1];
  const size_t entries = entries_of(h, where_);
  page_ = decompress(codec_, body, static_cast<size_t>(header[kFull].number), where_);
  start_page(entries);
  ByteCursor in(page_, where_);
  const auto levels = [&](int max_level, int64_t encoding) {
    require(encoding == kRle, Fault::Data, where_,
            ": levels in the old BIT_PACKED encoding are not read; write the file anew with pyarrow");
    const std::string_view packed = in.take(in.value<uint32_t>());
    ByteCursor level_bytes(packed, where_);
    return decode_hybrid(level_bytes, bits_for(max_level), entries);
  };
  if (leaf_.max_rep > 0) rep_ = levels(leaf_.max_rep, h[4].number);
  if (leaf_.max_def > 0) def_ = levels(leaf_.max_def, h[3].number);
  const size_t defined =
      def_.empty() ? entries
                   : static_cast<size_t>(std::count(def_.begin(), def_.end(), static_cast<uint32_t>(leaf_.max_def)));
  decode(h[2].number, in.rest(), defined);
}

void ParquetColumn::load_v2(const ThriftValue& header, std::span<const std::byte> body) {
  const ThriftValue& h = header[kV2];
  const size_t entries = entries_of(h, where_);
  const int64_t full = header[kFull].number, defs = h[5].number, reps = h[6].number;
  const bool sane = defs >= 0 && reps >= 0 && defs <= full && reps <= full - defs &&
                    static_cast<size_t>(defs) + static_cast<size_t>(reps) <= body.size();
  require(sane, Fault::Data, where_, ": damaged page (sizes of its levels)");
  start_page(entries);
  const size_t head = static_cast<size_t>(defs + reps);
  ByteCursor level_bytes(text_of(body.first(head)), where_);
  ByteCursor rep_bytes(level_bytes.take(static_cast<size_t>(reps)), where_), def_bytes(level_bytes.rest(), where_);
  if (leaf_.max_rep > 0) rep_ = decode_hybrid(rep_bytes, bits_for(leaf_.max_rep), entries);
  if (leaf_.max_def > 0) def_ = decode_hybrid(def_bytes, bits_for(leaf_.max_def), entries);
  const bool compressed = !h.has(7) || h[7].number;
  const auto packed = body.subspan(head);
  if (packed.empty())  // a page of nulls alone may hold no values, not even compressed ones
    page_.clear();
  else
    page_ = decompress(compressed ? codec_ : Codec::None, packed, static_cast<size_t>(full) - head, where_);
  const size_t defined =
      def_.empty() ? entries
                   : static_cast<size_t>(std::count(def_.begin(), def_.end(), static_cast<uint32_t>(leaf_.max_def)));
  decode(h[4].number, page_, defined);
}

void ParquetColumn::decode(int64_t encoding, std::string_view bytes, size_t defined) {
  values_ = {};
  index_.clear();
  by_index_ = encoding == kPlainDictionary || encoding == kRleDictionary;
  if (defined == 0) return;
  ByteCursor in(bytes, where_);
  if (by_index_) {
    require(has_dictionary_, Fault::Data, where_, ": values by dictionary, but there is none; the file is damaged");
    index_ = decode_hybrid(in, in.value<uint8_t>(), defined);
    const size_t known = dictionary_.size();
    require(std::all_of(index_.begin(), index_.end(), [&](uint32_t i) { return i < known; }), Fault::Data, where_,
            ": a value beyond its dictionary; the file is damaged");
    return;
  }
  switch (encoding) {
    case kPlain:
      return plain(values_, bytes, defined);
    case kRle: {
      require(leaf_.physical == Physical::Boolean, Fault::Data, where_,
              ": run-length encoding for values that are not booleans");
      const std::string_view packed = in.take(in.value<uint32_t>());
      ByteCursor runs(packed, where_);
      for (const uint32_t bit : decode_hybrid(runs, 1, defined)) values_.integers.push_back(bit);
      return;
    }
    case kDelta: {
      require(!is_text(leaf_) && !is_real(leaf_), Fault::Data, where_,
              ": delta encoding for values that are not integers");
      values_.integers = decode_delta(in, defined);
      if (leaf_.physical == Physical::Int32)
        for (int64_t& v : values_.integers) v = static_cast<int32_t>(v);
      return;
    }
    case kDeltaLength: {
      require(is_text(leaf_), Fault::Data, where_, ": a text encoding for numbers");
      values_.texts = decode_delta_lengths(in, defined);
      return;
    }
    case kDeltaStrings: {
      require(is_text(leaf_), Fault::Data, where_, ": a text encoding for numbers");
      for (auto& text : decode_delta_strings(in, defined))
        values_.texts.push_back(values_.owned.emplace_back(std::move(text)));
      break;
    }
    case kByteStreamSplit:
      return split_streams(bytes, defined);
    default:
      fail(Fault::Data, where_, ": encoding ", encoding, " is not known; write the file anew with pyarrow");
  }
  if (leaf_.physical == Physical::Fixed)
    for (const auto text : values_.texts)
      require(text.size() == static_cast<size_t>(leaf_.fixed_size), Fault::Data, where_, ": a value of the wrong size");
}

void ParquetColumn::plain(ParquetValues& out, std::string_view bytes, size_t count) const {
  ByteCursor in(bytes, where_);
  const size_t least = leaf_.physical == Physical::Boolean ? (count + 7) / 8
                       : leaf_.physical == Physical::Fixed ? count * static_cast<size_t>(leaf_.fixed_size)
                                                           : count * 4;
  require(least <= bytes.size(), Fault::Data, where_, ": damaged page (it ends too early)");
  for (size_t i = 0; i < count; ++i) {
    switch (leaf_.physical) {
      case Physical::Boolean:
        out.integers.push_back(static_cast<uint8_t>(bytes[i / 8]) >> (i % 8) & 1);
        break;
      case Physical::Int32:
        out.integers.push_back(in.value<int32_t>());
        break;
      case Physical::Int64:
        out.integers.push_back(in.value<int64_t>());
        break;
      case Physical::Float:
        out.reals.push_back(in.value<float>());
        break;
      case Physical::Double:
        out.reals.push_back(in.value<double>());
        break;
      case Physical::Int96:
        out.texts.push_back(in.take(12));
        break;
      case Physical::Bytes:
        out.texts.push_back(in.take(in.value<uint32_t>()));
        break;
      case Physical::Fixed:
        out.texts.push_back(in.take(static_cast<size_t>(leaf_.fixed_size)));
        break;
    }
  }
}

// Byte k of every value stands together: put them back, then read as plain.
void ParquetColumn::split_streams(std::string_view bytes, size_t count) {
  size_t width = 0;
  switch (leaf_.physical) {
    case Physical::Int32:
    case Physical::Float:
      width = 4;
      break;
    case Physical::Int64:
    case Physical::Double:
      width = 8;
      break;
    case Physical::Fixed:
      width = static_cast<size_t>(leaf_.fixed_size);
      break;
    default:
      break;
  }
  require(width > 0 && count <= bytes.size() / width, Fault::Data, where_, ": damaged page (byte streams)");
  std::string joined(count * width, '\0');
  for (size_t k = 0; k < width; ++k)
    for (size_t i = 0; i < count; ++i) joined[i * width + k] = bytes[k * count + i];
  const std::string& kept = values_.owned.emplace_back(std::move(joined));
  plain(values_, kept, count);
}

Json ParquetColumn::value() {
  ensure();
  if (!def_.empty() && static_cast<int>(def_[at_]) != leaf_.max_def) return nullptr;
  return by_index_ ? cell(dictionary_, index_[value_at_]) : cell(values_, value_at_);
}

Json ParquetColumn::cell(const ParquetValues& values, size_t index) const {
  if (is_real(leaf_)) return values.reals[index];
  if (is_text(leaf_)) {
    const std::string_view raw = values.texts[index];
    if (leaf_.physical == Physical::Int96) return int96_text(raw);
    switch (leaf_.meaning) {
      case Meaning::Text:
      case Meaning::Json:
        return std::string(raw);
      case Meaning::Decimal:
        return decimal_value(raw, leaf_.scale);
      case Meaning::Uuid:
        return uuid_text(raw);
      case Meaning::Half:
        if (raw.size() == 2)
          return half_to_double(
              static_cast<uint16_t>(static_cast<uint8_t>(raw[0]) | static_cast<uint8_t>(raw[1]) << 8));
        return bytes_text(raw);
      case Meaning::Unsaid:  // Impala, Spark and Hive write texts without saying so
        return reads_as_text(raw) ? Json(std::string(raw)) : Json(bytes_text(raw));
      default:
        return bytes_text(raw);
    }
  }
  const int64_t v = values.integers[index];
  switch (leaf_.meaning) {
    case Meaning::Unsigned:
      return leaf_.physical == Physical::Int32 ? Json(static_cast<uint32_t>(v)) : Json(static_cast<uint64_t>(v));
    case Meaning::Decimal:
      return static_cast<double>(v) / std::pow(10.0, leaf_.scale);
    case Meaning::Date:
      return date_text(v);
    case Meaning::TimeMs:
    case Meaning::TimeUs:
    case Meaning::TimeNs:
      return clock_text(v, per_second(leaf_.meaning));
    case Meaning::StampMs:
    case Meaning::StampUs:
    case Meaning::StampNs:
      return stamp_text(v, per_second(leaf_.meaning));
    default:
      return leaf_.physical == Physical::Boolean ? Json(v != 0) : Json(v);
  }
}

}  // namespace apus
