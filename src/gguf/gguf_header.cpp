// SPDX-License-Identifier: Apache-2.0
// The beginning of a GGUF file, bounded: every length is compared with what is left of the file before anything is made
// of it.
#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "base/error.h"
#include "gguf/gguf_file.h"

namespace apus {

namespace {

constexpr int64_t kMaxSettings = 1 << 16, kMaxTensors = 1 << 18, kMaxList = 1 << 24, kMaxName = 1 << 10;
constexpr const char* kAlignmentKey = "general.alignment";
constexpr int64_t kUsualAlignment = 32;

int64_t size_of(GgufKind kind) {
  switch (kind) {
    case GgufKind::U8:
    case GgufKind::I8:
    case GgufKind::Bool:
      return 1;
    case GgufKind::U16:
    case GgufKind::I16:
      return 2;
    case GgufKind::U64:
    case GgufKind::I64:
    case GgufKind::F64:
    case GgufKind::String:  // its length
      return 8;
    default:
      return 4;
  }
}

bool is_fraction(GgufKind kind) { return kind == GgufKind::F32 || kind == GgufKind::F64; }

class Reader {
 public:
  Reader(const std::byte* data, int64_t size, const std::string& where) : data_(data), size_(size), where_(where) {}

  int64_t at() const { return at_; }
  template <class T>
  T raw() {
    need(static_cast<int64_t>(sizeof(T)));
    T value;
    std::memcpy(&value, data_ + at_, sizeof value);
    at_ += static_cast<int64_t>(sizeof value);
    return value;
  }
  // A count or length of which each takes at least `each` bytes of what is left.
  int64_t count(int64_t most, int64_t each, const char* what) {
    const auto n = raw<uint64_t>();
    if (n > static_cast<uint64_t>(most)) bad(n, " ", what, " are more than the ", most, " that are read");
    if (static_cast<int64_t>(n) > (size_ - at_) / each)
      bad(n, " ", what, " do not fit into the ", size_ - at_, " bytes that are left: the file is damaged or truncated");
    return static_cast<int64_t>(n);
  }
  std::string text(int64_t most) {
    const int64_t length = count(most, 1, "bytes of text");
    std::string out(reinterpret_cast<const char*>(data_ + at_), static_cast<size_t>(length));
    at_ += length;
    return out;
  }
  GgufKind kind() {
    const auto number = raw<uint32_t>();
    if (number > static_cast<uint32_t>(GgufKind::F64)) bad("kind ", number, " of a value is not known");
    return static_cast<GgufKind>(number);
  }
  GgufValue value() {
    const GgufKind of = kind();
    if (of == GgufKind::Array) return list();
    if (of == GgufKind::String) return GgufValue::text(text(size_));
    if (of == GgufKind::Bool) return GgufValue::flag(raw<uint8_t>() != 0);
    if (is_fraction(of)) return {of, fraction(of)};
    return {of, integer(of)};
  }
  // What is read now, for messages.
  void reads(std::string what) { what_ = std::move(what); }
  template <class... P>
  [[noreturn]] void bad(const P&... why) const {
    fail(Fault::Model, where_, what_.empty() ? "" : ": " + what_, ": ", why...);
  }

 private:
  void need(int64_t bytes) const {
    if (bytes > size_ - at_) bad("the file ends at byte ", size_, ", in the middle of its header: download it again");
  }
  double fraction(GgufKind of) { return of == GgufKind::F32 ? static_cast<double>(raw<float>()) : raw<double>(); }
  int64_t integer(GgufKind of) {
    switch (of) {
      case GgufKind::U8:
      case GgufKind::Bool:
        return raw<uint8_t>();
      case GgufKind::I8:
        return raw<int8_t>();
      case GgufKind::U16:
        return raw<uint16_t>();
      case GgufKind::I16:
        return raw<int16_t>();
      case GgufKind::U32:
        return raw<uint32_t>();
      case GgufKind::I32:
        return raw<int32_t>();
      case GgufKind::I64:
        return raw<int64_t>();
      default:
        break;
    }
    const auto wide = raw<uint64_t>();
    if (wide > static_cast<uint64_t>(INT64_MAX)) bad("the number ", wide, " is out of range");
    return static_cast<int64_t>(wide);
  }
  GgufValue list() {
    const GgufKind element = kind();
    if (element == GgufKind::Array) bad("lists of lists are not read");
    const int64_t n = count(kMaxList, size_of(element), "values of a list");
    if (element == GgufKind::String) {
      GgufValue::Strings all;
      for (int64_t i = 0; i < n; ++i) all.push_back(text(size_));
      return GgufValue::list(element, std::move(all));
    }
    if (is_fraction(element)) {
      GgufValue::Numbers all;
      for (int64_t i = 0; i < n; ++i) all.push_back(fraction(element));
      return GgufValue::list(element, std::move(all));
    }
    GgufValue::Integers all;
    for (int64_t i = 0; i < n; ++i) all.push_back(integer(element));
    return GgufValue::list(element, std::move(all));
  }

  const std::byte* data_;
  int64_t size_, at_ = 0;
  std::string where_, what_;
};

void read_beginning(Reader& in, const std::byte* data, int64_t size) {
  const std::string_view start(reinterpret_cast<const char*>(data), static_cast<size_t>(std::min<int64_t>(size, 24)));
  if (start.starts_with("version https://git-lfs"))
    in.bad("this is git-lfs's note of a file, not the file: fetch it with `git lfs pull` in that folder");
  if (!start.starts_with("GGUF"))
    in.bad(start.starts_with("FUGG") || start.starts_with("ggjt") || start.starts_with("ggml")
               ? "an older format than GGUF, or one of another byte order, which is not read"
               : "this is no GGUF file");
  in.raw<uint32_t>();
  const auto version = in.raw<uint32_t>();
  if (version == __builtin_bswap32(2) || version == __builtin_bswap32(3))
    in.bad("its numbers are in the other byte order (big-endian), which is not read");
  if (version != 2 && version != 3) in.bad("version ", version, " of the format is not read, only 2 and 3");
}

// A tensor's place, still from where the tensors begin.
GgufTensor read_tensor(Reader& in) {
  GgufTensor t;
  t.name = in.text(kMaxName);
  in.reads(str("tensor '", t.name.substr(0, 200), "'"));
  const auto dims = in.raw<uint32_t>();
  if (dims < 1 || dims > 4) in.bad(dims, " dimensions, where 1 to 4 are possible");
  int64_t numbers = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    const auto dim = in.raw<uint64_t>();
    if (dim > static_cast<uint64_t>(INT64_MAX) || __builtin_mul_overflow(numbers, static_cast<int64_t>(dim), &numbers))
      in.bad("the shape overflows");
    t.shape.insert(t.shape.begin(), static_cast<int64_t>(dim));
  }
  const auto type = in.raw<uint32_t>();
  const GgmlForm* form = find_ggml_form(type);
  if (!form) in.bad("the format ", ggml_type_name(type), " is not read; these are: ", readable_ggml_types());
  t.type = form->type;
  if (t.shape.back() % form->block != 0)
    in.bad("rows of ", t.shape.back(), " numbers are no whole blocks of ", form->block, ", which ", form->name, " has");
  if (__builtin_mul_overflow(numbers / form->block, form->bytes, &t.bytes)) in.bad("the shape overflows");
  const auto offset = in.raw<uint64_t>();
  if (offset > static_cast<uint64_t>(INT64_MAX)) in.bad("its place ", offset, " is out of range");
  t.begin = static_cast<int64_t>(offset);
  return t;
}

void settle(GgufTensor& t, int64_t data_begin, int64_t size, int64_t alignment, Reader& in) {
  in.reads(str("tensor '", t.name.substr(0, 200), "'"));
  if (t.begin % alignment != 0) in.bad("its place ", t.begin, " is no multiple of the alignment ", alignment);
  const int64_t room = size - data_begin;
  if (t.begin > room || t.bytes > room - t.begin)
    in.bad(t.bytes, " bytes from byte ", t.begin, " of the data on, but the file has only ", std::max<int64_t>(0, room),
           " bytes of data: it is truncated, download it again");
  t.begin += data_begin;
}

template <class T>
const T* held(const GgufHeader& header, const std::string& key, const char* wanted) {
  const GgufValue* value = header.find(key);
  if (!value) return nullptr;
  const T* found = std::get_if<T>(&value->held);
  require(found != nullptr, Fault::Model, header.where, ": '", key, "' must be ", wanted);
  return found;
}

}  // namespace

GgufValue GgufValue::list(GgufKind element, Held values) {
  GgufValue out(GgufKind::Array, std::move(values));
  out.element = element;
  return out;
}

const std::vector<float>& GgufHeader::factors(const std::string& tensor) const {
  static const std::vector<float> none;
  const auto it = factors_of.find(tensor);
  return it == factors_of.end() ? none : it->second;
}

int64_t GgufTensor::numel() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

const GgufValue* GgufHeader::find(const std::string& key) const {
  const auto it = settings.find(key);
  return it == settings.end() ? nullptr : &it->second;
}

std::string GgufHeader::text(const std::string& key, const std::string& fallback) const {
  const auto* found = held<std::string>(*this, key, "a text");
  return found ? *found : fallback;
}
std::optional<int64_t> GgufHeader::integer(const std::string& key) const {
  const auto* found = held<int64_t>(*this, key, "a whole number");
  return found ? std::optional(*found) : std::nullopt;
}
std::optional<double> GgufHeader::number(const std::string& key) const {
  const auto* found = held<double>(*this, key, "a number");
  return found ? std::optional(*found) : std::nullopt;
}
std::optional<bool> GgufHeader::flag(const std::string& key) const {
  const auto* found = held<bool>(*this, key, "true or false");
  return found ? std::optional(*found) : std::nullopt;
}
const GgufValue::Strings* GgufHeader::strings(const std::string& key) const {
  return held<GgufValue::Strings>(*this, key, "a list of texts");
}
const GgufValue::Integers* GgufHeader::integers(const std::string& key) const {
  return held<GgufValue::Integers>(*this, key, "a list of whole numbers");
}
const GgufValue::Numbers* GgufHeader::numbers(const std::string& key) const {
  return held<GgufValue::Numbers>(*this, key, "a list of numbers");
}

GgufHeader parse_gguf(const std::byte* data, int64_t size, const std::string& where) {
  Reader in(data, size, where);
  read_beginning(in, data, size);
  GgufHeader header;
  header.where = where;
  const int64_t tensors = in.count(kMaxTensors, 24, "tensors"), settings = in.count(kMaxSettings, 13, "settings");
  for (int64_t i = 0; i < settings; ++i) {
    in.reads(str("setting ", i));
    const std::string key = in.text(kMaxName);
    in.reads(str("setting '", key.substr(0, 200), "'"));
    GgufValue value = in.value();
    if (!header.settings.emplace(key, std::move(value)).second) in.bad("it appears twice");
  }
  in.reads("");
  const int64_t alignment = header.integer(kAlignmentKey).value_or(kUsualAlignment);
  if (alignment < 1 || alignment > (1 << 20) || (alignment & (alignment - 1)) != 0)
    in.bad(kAlignmentKey, " is ", alignment, ", it must be a power of two");
  std::set<std::string> names;
  for (int64_t i = 0; i < tensors; ++i) {
    in.reads(str("tensor ", i));
    header.tensors.push_back(read_tensor(in));
    if (!names.insert(header.tensors.back().name).second) in.bad("the name appears twice");
  }
  const int64_t data_begin = (in.at() + alignment - 1) / alignment * alignment;
  for (GgufTensor& t : header.tensors) settle(t, data_begin, size, alignment, in);
  return header;
}

}  // namespace apus
