// SPDX-License-Identifier: Apache-2.0
#include "tensor/torch_file.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace apus {

namespace {

// Numbers of the file, low byte first.
class FileBytes {
 public:
  FileBytes(const std::byte* data, int64_t size, const std::string& where) : data_(data), size_(size), where_(where) {}
  [[noreturn]] void damaged(const std::string& what) const {
    fail(Fault::Model, where_, ": ", what, ": the file is damaged or no weights of PyTorch");
  }
  std::string_view at(int64_t begin, int64_t length) const {
    if (begin < 0 || length < 0 || begin > size_ || length > size_ - begin) damaged("it is truncated");
    return {reinterpret_cast<const char*>(data_) + begin, static_cast<size_t>(length)};
  }
  template <class T>
  int64_t number(int64_t begin) const {
    T out;
    std::memcpy(&out, at(begin, sizeof(T)).data(), sizeof(T));
    if constexpr (sizeof(T) == 8) {
      if (out > static_cast<T>(INT64_MAX)) damaged("a number is out of range");
    }
    return static_cast<int64_t>(out);
  }
  int64_t size() const { return size_; }

 private:
  const std::byte* data_;
  int64_t size_;
  const std::string& where_;
};

struct ZipEntry {
  int64_t begin = 0, length = 0;
};

constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kEnd64Place = 0x07064b50, kListed = 0x02014b50,
                   kLocal = 0x04034b50;
constexpr int64_t kTooLarge = 0xFFFFFFFF;  // the number stands in an extra field

// The sizes and the place of an entry that do not fit in 32 bits.
void read_extra(const FileBytes& file, int64_t at, int64_t length, int64_t& full, int64_t& packed, int64_t& place) {
  for (const int64_t end = at + length; at + 4 <= end;) {
    const int64_t kind = file.number<uint16_t>(at), size = file.number<uint16_t>(at + 2);
    at += 4;
    if (kind == 1) {
      int64_t next = at;
      for (int64_t* each : {&full, &packed, &place})
        if (*each == kTooLarge) *each = file.number<uint64_t>(next), next += 8;
      return;
    }
    at += size;
  }
}

// Files of the archive by their names below its own folder.
std::map<std::string, ZipEntry> read_archive(const FileBytes& file) {
  int64_t end = file.size() - 22;
  const int64_t last = std::max<int64_t>(0, end - 0xFFFF);
  while (end >= last && end >= 0 && file.number<uint32_t>(end) != kEnd) --end;
  if (end < last || end < 0) file.damaged("the archive has no end");
  int64_t count = file.number<uint16_t>(end + 10), at = file.number<uint32_t>(end + 16);
  if (end >= 20 && file.number<uint32_t>(end - 20) == kEnd64Place) {
    const int64_t end64 = file.number<uint64_t>(end - 12);
    if (file.number<uint32_t>(end64) != kEnd64) file.damaged("the archive's end is missing");
    count = file.number<uint64_t>(end64 + 32), at = file.number<uint64_t>(end64 + 48);
  }
  std::map<std::string, ZipEntry> out;
  for (int64_t i = 0; i < count; ++i) {
    if (file.number<uint32_t>(at) != kListed) file.damaged("an entry of the archive is missing");
    const int64_t method = file.number<uint16_t>(at + 10), name = file.number<uint16_t>(at + 28),
                  extra = file.number<uint16_t>(at + 30), remark = file.number<uint16_t>(at + 32);
    int64_t packed = file.number<uint32_t>(at + 20), full = file.number<uint32_t>(at + 24),
            place = file.number<uint32_t>(at + 42);
    read_extra(file, at + 46 + name, extra, full, packed, place);
    std::string path(file.at(at + 46, name));
    at += 46 + name + extra + remark;
    if (method != 0 || packed != full) file.damaged("'" + path.substr(0, 100) + "' is compressed");
    if (file.number<uint32_t>(place) != kLocal) file.damaged("an entry of the archive has no beginning");
    const int64_t begin = place + 30 + file.number<uint16_t>(place + 26) + file.number<uint16_t>(place + 28);
    file.at(begin, full);
    const size_t slash = path.find('/');
    out[slash == std::string::npos ? path : path.substr(slash + 1)] = {begin, full};
  }
  return out;
}

struct Value;
using Values = std::vector<Value*>;

// What stands in the pickle, as far as a state dict has such things.
struct Value {
  enum class Kind { Nothing, Mark, Number, Text, Name, List, Dict, Storage, Tensor } kind = Kind::Nothing;
  int64_t number = 0;  // also a tensor's place in its storage, in elements
  std::string text;    // of a name: "module name"; of a storage: its file; of a tensor: that of its storage
  Values items;        // of a dict: keys and values by turns
  DiskType type = DiskType::F32;
  std::vector<int64_t> shape, strides;
};
using Kind = Value::Kind;

std::optional<DiskType> type_of_storage(const std::string& name) {
  static const std::map<std::string, DiskType> types = {
      {"torch DoubleStorage", DiskType::F64}, {"torch FloatStorage", DiskType::F32},
      {"torch HalfStorage", DiskType::F16},   {"torch BFloat16Storage", DiskType::BF16},
      {"torch LongStorage", DiskType::I64},   {"torch IntStorage", DiskType::I32},
      {"torch ShortStorage", DiskType::I16},  {"torch CharStorage", DiskType::I8},
      {"torch ByteStorage", DiskType::U8},    {"torch BoolStorage", DiskType::Bool}};
  const auto found = types.find(name);
  return found == types.end() ? std::nullopt : std::optional(found->second);
}

class Unpickler {
 public:
  Unpickler(std::string_view bytes, const std::string& where) : left_(bytes), where_(where) {}

  // Lives as long as this.
  const Value* read() {
    for (;;) {
      const char code = take(1)[0];
      if (code == '.') return pop();
      step(static_cast<uint8_t>(code));
    }
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    fail(Fault::Model, where_, ": its pickle ", what,
         ": it is no state dict of tensors. Save it as safetensors where it was made: "
         "safetensors.torch.save_file(state_dict, \"model.safetensors\")");
  }
  std::string_view take(size_t count) {
    if (count > left_.size()) wrong("ends too early");
    const std::string_view out = left_.substr(0, count);
    left_.remove_prefix(count);
    return out;
  }
  template <class T>
  T number() {
    T out;
    std::memcpy(&out, take(sizeof(T)).data(), sizeof(T));
    return out;
  }
  std::string line() {
    const size_t end = left_.find('\n');
    if (end == std::string_view::npos) wrong("ends too early");
    std::string out(take(end));
    take(1);
    return out;
  }
  Value* made(Kind kind) {
    all_.emplace_back();
    all_.back().kind = kind;
    return &all_.back();
  }
  void push(Value* value) { stack_.push_back(value); }
  void push_number(int64_t n) {
    push(made(Kind::Number));
    stack_.back()->number = n;
  }
  void push_text(Kind kind, std::string text) {
    push(made(kind));
    stack_.back()->text = std::move(text);
  }
  Value* pop() {
    if (stack_.empty()) wrong("is broken");
    Value* out = stack_.back();
    stack_.pop_back();
    return out;
  }
  Value& top(Kind kind) {
    if (stack_.empty() || stack_.back()->kind != kind) wrong("is broken");
    return *stack_.back();
  }
  // Everything behind the last mark, which goes too.
  Values marked() {
    Values out;
    while (!stack_.empty() && stack_.back()->kind != Kind::Mark) out.push_back(pop());
    pop();
    return {out.rbegin(), out.rend()};
  }
  void push_list(Values items) {
    push(made(Kind::List));
    stack_.back()->items = std::move(items);
  }
  void push_last(size_t count) {
    Values items(count);
    while (count-- > 0) items[count] = pop();
    push_list(std::move(items));
  }
  void put(uint64_t place) {
    if (stack_.empty()) wrong("is broken");
    memo_[place] = stack_.back();
  }
  void get(uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) wrong("is broken");
    push(found->second);
  }

  void step(uint8_t code) {
    switch (code) {
      // The pickle's version, and how long a part of it is.
      case 0x80:
        take(1);
        return;
      case 0x95:
        take(8);
        return;
      case '(':
        return push(made(Kind::Mark));
      case 'N':
        return push(made(Kind::Nothing));
      case 0x88:
        return push_number(1);
      case 0x89:
        return push_number(0);
      case 'K':
        return push_number(number<uint8_t>());
      case 'M':
        return push_number(number<uint16_t>());
      case 'J':
        return push_number(number<int32_t>());
      case 0x8a:
        return push_long(number<uint8_t>());
      case 'G':
        take(8);
        return push(made(Kind::Nothing));
      case 'X':
        return push_text(Kind::Text, std::string(take(number<uint32_t>())));
      case 0x8c:
        return push_text(Kind::Text, std::string(take(number<uint8_t>())));
      case 'c':
        return push_name();
      case 0x93:
        return push_stacked_name();
      case ')':
      case ']':
        return push_list({});
      case '}':
        return push(made(Kind::Dict));
      case 't':
        return push_list(marked());
      case 0x85:
        return push_last(1);
      case 0x86:
        return push_last(2);
      case 0x87:
        return push_last(3);
      case 'a':
        return append({pop()});
      case 'e':
        return append(marked());
      case 's': {
        Value *value = pop(), *key = pop();
        return set({key, value});
      }
      case 'u':
        return set(marked());
      case 'q':
        return put(number<uint8_t>());
      case 'r':
        return put(number<uint32_t>());
      case 0x94:
        return put(memo_.size());
      case 'h':
        return get(number<uint8_t>());
      case 'j':
        return get(number<uint32_t>());
      case 'Q':
        return push_storage(*pop());
      case 'R': {
        Value *arguments = pop(), *name = pop();
        return call(*name, *arguments);
      }
      case 'b':
        pop();
        return;  // a state dict's own notes
      default:
        wrong(str("has the operation ", int{code}));
    }
  }
  void push_long(size_t bytes) {
    if (bytes > 8) wrong("has a number that is too large");
    const std::string_view digits = take(bytes);
    int64_t n = bytes > 0 && static_cast<int8_t>(digits.back()) < 0 ? -1 : 0;
    std::memcpy(&n, digits.data(), bytes);
    push_number(n);
  }
  void push_name() {
    std::string module = line();
    push_text(Kind::Name, module + " " + line());
  }
  void push_stacked_name() {
    const Value *name = pop(), *module = pop();
    push_text(Kind::Name, module->text + " " + name->text);
  }
  void append(Values items) {
    Value& list = top(Kind::List);
    list.items.insert(list.items.end(), items.begin(), items.end());
  }
  void set(Values items) {
    if (items.size() % 2 != 0) wrong("is broken");
    Value& dict = top(Kind::Dict);
    dict.items.insert(dict.items.end(), items.begin(), items.end());
  }
  // ("storage", its type, its file, the device, how many numbers)
  void push_storage(const Value& said) {
    if (said.items.size() != 5 || said.items[0]->text != "storage" || said.items[1]->kind != Kind::Name)
      wrong("refers to something else than numbers beside it");
    const auto type = type_of_storage(said.items[1]->text);
    if (!type) wrong("has numbers of the type '" + said.items[1]->text.substr(0, 100) + "'");
    Value* out = made(Kind::Storage);
    out->text = said.items[2]->text, out->type = *type;
    push(out);
  }
  std::vector<int64_t> numbers(const Value& list) const {
    std::vector<int64_t> out;
    for (const Value* each : list.items) {
      if (each->kind != Kind::Number || each->number < 0) wrong("has a tensor without a shape");
      out.push_back(each->number);
    }
    return out;
  }
  void call(const Value& name, const Value& arguments) {
    if (name.kind != Kind::Name) wrong("calls what is no function");
    if (name.text == "collections OrderedDict") return push(made(Kind::Dict));
    const Values& a = arguments.items;
    if (name.text == "torch._utils _rebuild_parameter" && !a.empty()) return push(a[0]);
    if (name.text != "torch._utils _rebuild_tensor_v2")
      wrong("would call '" + name.text.substr(0, 100) + "', which is not done");
    if (a.size() < 4 || a[0]->kind != Kind::Storage || a[1]->kind != Kind::Number) wrong("has a broken tensor");
    Value* out = made(Kind::Tensor);
    out->text = a[0]->text, out->type = a[0]->type, out->number = a[1]->number;
    out->shape = numbers(*a[2]), out->strides = numbers(*a[3]);
    push(out);
  }

  std::string_view left_;
  const std::string& where_;
  std::deque<Value> all_;  // owns them: a pickle may put a list into itself
  Values stack_;
  std::map<uint64_t, Value*> memo_;
};

// One row behind the other, without gaps.
bool is_dense(const Value& tensor) {
  if (tensor.strides.size() != tensor.shape.size()) return false;
  int64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    if (__builtin_mul_overflow(expected, tensor.shape[i], &expected)) return false;
  }
  return true;
}

TensorEntry entry_of(const Value& tensor, const std::map<std::string, ZipEntry>& archive, const std::string& name,
                     const std::string& where) {
  const auto in = [&] { return str(where, ": tensor '", name.substr(0, 200), "': "); };
  require(tensor.shape.size() <= 32 && is_dense(tensor), Fault::Model, in(),
          "its numbers do not stand one row behind the other (it was transposed or cut out of another); save it with "
          ".contiguous() where it was made");
  const auto file = archive.find("data/" + tensor.text);
  require(file != archive.end(), Fault::Model, in(), "its numbers are missing from the file");
  int64_t bytes = disk_size(tensor.type), begin = tensor.number;
  bool fits = !__builtin_mul_overflow(begin, bytes, &begin);
  for (const int64_t dim : tensor.shape) fits = fits && !__builtin_mul_overflow(bytes, dim, &bytes);
  require(fits && begin >= 0 && begin <= file->second.length && bytes <= file->second.length - begin, Fault::Model,
          in(), "its numbers end beyond those that the file has: the file is truncated, download it again");
  return {tensor.type, tensor.shape, file->second.begin + begin, file->second.begin + begin + bytes};
}

// A dict of dicts: tensors and whole numbers by both names with a dot between.
void add_groups(const Value& all, const std::map<std::string, ZipEntry>& archive, const std::string& where,
                SafetensorsHeader& out) {
  if (all.kind != Kind::Dict) return;
  for (size_t i = 0; i + 1 < all.items.size(); i += 2) {
    const Value& group = *all.items[i + 1];
    if (group.kind != Kind::Dict) continue;
    for (size_t j = 0; j + 1 < group.items.size(); j += 2) {
      const std::string name = all.items[i]->text + "." + group.items[j]->text;
      const Value& value = *group.items[j + 1];
      if (value.kind == Kind::Tensor) out.tensors[name] = entry_of(value, archive, name, where);
      if (value.kind == Kind::Number) out.metadata[name] = std::to_string(value.number);
    }
  }
}

}  // namespace

bool is_torch_file(const std::byte* data, int64_t size) { return size >= 4 && std::memcmp(data, "PK\x03\x04", 4) == 0; }

SafetensorsHeader parse_torch_file(const std::byte* data, int64_t size, const std::string& where) {
  const FileBytes file(data, size, where);
  const std::map<std::string, ZipEntry> archive = read_archive(file);
  const auto order = archive.find("byteorder");
  if (order != archive.end() && file.at(order->second.begin, order->second.length) == "big")
    fail(Fault::Model, where, ": its numbers have their high bytes first, which is not read");
  const auto pickle = archive.find("data.pkl");
  require(pickle != archive.end(), Fault::Model, where,
          ": an archive without data.pkl is no file of PyTorch's weights");
  constexpr int64_t kMostPickle = 16 << 20;
  require(pickle->second.length <= kMostPickle, Fault::Model, where, ": its pickle has ", pickle->second.length,
          " bytes, which is more than tensors' names and shapes need");
  Unpickler unpickler(file.at(pickle->second.begin, pickle->second.length), where);
  const Value* all = unpickler.read();
  SafetensorsHeader out;
  for (int depth = 0; depth < 2 && all->kind == Kind::Dict; ++depth) {
    const Value* inner = nullptr;
    for (size_t i = 0; i + 1 < all->items.size(); i += 2) {
      const Value &key = *all->items[i], &value = *all->items[i + 1];
      if (value.kind == Kind::Tensor)
        out.tensors[key.text] = entry_of(value, archive, key.text, where);
      else if (value.kind == Kind::Dict && (key.text == "state_dict" || key.text == "model" || key.text == "module"))
        inner = all->items[i + 1];
    }
    if (!out.tensors.empty() || !inner) break;
    all = inner;
  }
  if (out.tensors.empty()) add_groups(*all, archive, where, out);
  require(!out.tensors.empty(), Fault::Model, where, ": its pickle holds no state dict of tensors");
  return out;
}

}  // namespace apus
