// SPDX-License-Identifier: Apache-2.0
#include "gguf/imatrix.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "gguf/gguf_file.h"

namespace apus {

namespace {

using Values = std::map<std::string, std::vector<float>>;

// The older form: entries of a name, a number of calls, a number of values and the values.
class EntryReader {
 public:
  EntryReader(const MappedFile& file, const std::string& where)
      : data_(file.data()), size_(file.size()), where_(where) {}
  Values all() {
    Values out;
    const int64_t entries = count(1 << 20);
    for (int64_t i = 0; i < entries; ++i) {
      const std::string name = text(count(1 << 10));
      const int64_t calls = count(INT32_MAX), values = count(1 << 28);
      std::vector<float>& row = out[name];
      row.resize(static_cast<size_t>(values));
      take(row.data(), values * static_cast<int64_t>(sizeof(float)));
      for (float& value : row)
        if (calls > 0) value /= static_cast<float>(calls);
    }
    return out;
  }

 private:
  void take(void* out, int64_t bytes) {
    require(bytes <= size_ - at_, Fault::Model, where_,
            ": this is no importance matrix, or one that is cut short; llama-imatrix writes them");
    std::memcpy(out, data_ + at_, static_cast<size_t>(bytes));
    at_ += bytes;
  }
  int64_t count(int64_t most) {
    int32_t number = 0;
    take(&number, sizeof number);
    require(number >= 0 && number <= most, Fault::Model, where_,
            ": this is no importance matrix: it should say a count, and says ", number);
    return number;
  }
  std::string text(int64_t length) {
    std::string out(static_cast<size_t>(length), ' ');
    take(out.data(), length);
    return out;
  }

  const std::byte* data_;
  int64_t size_, at_ = 0;
  const std::string& where_;
};

// NAME.in_sum2 and NAME.counts: sums of squares, and of how many, of each of a stack's matrices.
Values values_of_gguf(const MappedFile& file, const std::string& where) {
  const GgufHeader header = parse_gguf(file.data(), file.size(), where);
  require(header.text("general.type") == "imatrix", Fault::Model, where,
          ": this GGUF file is no importance matrix: its 'general.type' is '", header.text("general.type"), "'");
  constexpr std::string_view kSums = ".in_sum2";
  std::map<std::string, const GgufTensor*> by_name;
  for (const GgufTensor& t : header.tensors) by_name[t.name] = &t;
  Values out;
  for (const auto& [name, sums] : by_name) {
    if (!name.ends_with(kSums)) continue;
    const std::string stem = name.substr(0, name.size() - kSums.size());
    const auto counts = by_name.find(stem + ".counts");
    require(counts != by_name.end() && sums->type == GgmlType::F32 && counts->second->type == GgmlType::F32 &&
                counts->second->numel() > 0 && sums->numel() % counts->second->numel() == 0,
            Fault::Model, where, ": '", name, "' has no counts that fit it");
    std::vector<float>& row = out[stem];
    row.resize(static_cast<size_t>(sums->numel()));
    std::memcpy(row.data(), file.data() + sums->begin, static_cast<size_t>(sums->bytes));
    const size_t width = row.size() / static_cast<size_t>(counts->second->numel());
    for (size_t i = 0; i < row.size(); ++i) {
      float count = 0;
      std::memcpy(&count, file.data() + counts->second->begin + i / width * sizeof count, sizeof count);
      row[i] = count > 0 ? row[i] / count : 1;  // of an expert that no text met, all are alike
    }
  }
  return out;
}

}  // namespace

ImportanceMatrix ImportanceMatrix::read(const std::filesystem::path& path) {
  ImportanceMatrix out;
  out.where_ = path.string();
  const MappedFile file(path);
  const bool gguf = file.size() >= 4 && std::memcmp(file.data(), "GGUF", 4) == 0;
  out.values_ = gguf ? values_of_gguf(file, out.where_) : EntryReader(file, out.where_).all();
  require(!out.values_.empty(), Fault::Model, out.where_, ": this importance matrix has no entries");
  for (const auto& [name, row] : out.values_)
    for (const float value : row)
      require(std::isfinite(value) && value >= 0, Fault::Model, out.where_, ": '", name, "' holds ", value,
              ", which is no mean of squares");
  return out;
}

const float* ImportanceMatrix::find(const std::string& tensor, int64_t width, int64_t stack) const {
  const auto it = values_.find(tensor);
  if (it == values_.end()) return nullptr;
  require(std::ssize(it->second) == width * stack, Fault::Model, where_, ": '", tensor, "' has ", it->second.size(),
          " values, the model's matrix needs ", width * stack, ": is it of another model?");
  return it->second.data();
}

}  // namespace apus
