// SPDX-License-Identifier: Apache-2.0
#include "data/encode/sample_store.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/differences.h"
#include "base/error.h"
#include "base/nearest.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int kVersion = 2;
constexpr std::string_view kMagic = "APUSDAT2";

uint32_t checksum(std::string_view bytes) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Runs of equal values: how many runs, then length and value of each.
template <class T>
void put_runs(std::string& out, const std::vector<T>& values) {
  std::vector<std::pair<uint32_t, T>> runs;
  for (const T value : values) {
    if (runs.empty() || runs.back().second != value) runs.push_back({0, value});
    ++runs.back().first;
  }
  put<uint32_t>(out, static_cast<uint32_t>(runs.size()));
  for (const auto& [length, value] : runs) {
    put(out, length);
    put(out, value);
  }
}

void put_text(std::string& out, const std::string& text) {
  put<uint32_t>(out, static_cast<uint32_t>(text.size()));
  out += text;
}

class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}
  std::string_view take(size_t count) {
    require(count <= bytes_.size(), Fault::Data, "a damaged sample (it ends too early)");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  template <class T>
  T value() {
    T out;
    std::memcpy(&out, take(sizeof out).data(), sizeof out);
    return out;
  }
  template <class T>
  std::vector<T> runs(size_t limit) {
    std::vector<T> out;
    for (uint32_t left = value<uint32_t>(); left > 0; --left) {
      const auto length = value<uint32_t>();
      require(length <= limit - out.size(), Fault::Data, "a damaged sample (a run beyond its end)");
      out.insert(out.end(), length, value<T>());
    }
    require(out.empty() || out.size() == limit, Fault::Data, "a damaged sample (values are missing)");
    return out;
  }
  std::string text() { return std::string(take(value<uint32_t>())); }
  bool empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

// What only some algorithms have; empty for a sample that is alone and has no columns.
std::string packed_columns(const Sample& sample) {
  std::string out;
  if (!sample.grouped && sample.columns.empty() && sample.token_columns.empty() && sample.row.empty() &&
      sample.media.empty())
    return out;
  put<uint8_t>(out, sample.grouped);
  put<uint32_t>(out, static_cast<uint32_t>(sample.columns.size()));
  for (const auto& [name, value] : sample.columns) put_text(out, name), put(out, value);
  put<uint32_t>(out, static_cast<uint32_t>(sample.token_columns.size()));
  for (const auto& [name, values] : sample.token_columns) {
    require(values.size() == sample.ids.size(), Fault::Bug, "the column ", name, " has not one value for each token");
    put_text(out, name), put_runs(out, values);
  }
  if (!sample.row.empty() || !sample.media.empty()) put_text(out, sample.row);
  // Pixels are not stored, but where they come from.
  for (const MediaItem& item : sample.media) {
    put(out, item.begin), put(out, item.length);
    put_text(out, item.digest), put_text(out, item.source);
  }
  return out;
}

void unpack_columns(std::string_view bytes, Sample& sample) {
  Unpacker in(bytes);
  const auto grouped = in.value<uint8_t>();
  require(grouped <= 1, Fault::Data, "a sample whose columns another version wrote");
  sample.grouped = grouped == 1;
  for (auto left = in.value<uint32_t>(); left > 0; --left) {
    const std::string name = in.text();
    sample.columns[name] = in.value<float>();
  }
  for (auto left = in.value<uint32_t>(); left > 0; --left) {
    const std::string name = in.text();
    sample.token_columns[name] = in.runs<float>(sample.ids.size());
  }
  if (!in.empty()) sample.row = in.text();
  while (!in.empty()) {
    MediaItem item;
    item.begin = in.value<int64_t>(), item.length = in.value<int64_t>();
    item.digest = in.text(), item.source = in.text();
    sample.media.push_back(std::move(item));
  }
}

}  // namespace

std::string pack_sample(const Sample& sample) {
  std::string out;
  put<uint32_t>(out, static_cast<uint32_t>(sample.ids.size()));
  out.append(reinterpret_cast<const char*>(sample.ids.data()), sample.ids.size() * sizeof(int32_t));
  put_runs(out, sample.trained);
  put_runs(out, sample.weights);
  put_text(out, sample.channel);
  put_text(out, packed_columns(sample));
  put(out, checksum(out));
  return out;
}

Sample unpack_sample(std::string_view bytes) {
  require(bytes.size() >= 4, Fault::Data, "a damaged sample (it is too short)");
  const std::string_view body = bytes.substr(0, bytes.size() - 4);
  require(Unpacker(bytes.substr(body.size())).value<uint32_t>() == checksum(body), Fault::Data,
          "a damaged sample (its checksum differs)");
  Unpacker in(body);
  Sample sample;
  const auto count = in.value<uint32_t>();
  const std::string_view ids = in.take(size_t{count} * sizeof(int32_t));
  sample.ids.resize(count);
  std::memcpy(sample.ids.data(), ids.data(), ids.size());
  sample.trained = in.runs<uint8_t>(count);
  sample.weights = in.runs<float>(count);
  sample.channel = in.text();
  if (const std::string columns = in.text(); !columns.empty()) unpack_columns(columns, sample);
  return sample;
}

void SampleStore::add(const Sample& sample) {
  require(!mapped_, Fault::Bug, "a cache on disk is not added to");
  const std::string bytes = pack_sample(sample);
  require(bytes.size() < size_t{1} << 31, Fault::Data, "a sample of more than 2 GiB");
  entries_.push_back({scratch_->append(bytes), static_cast<int32_t>(bytes.size()),
                      static_cast<int32_t>(sample.length()), static_cast<int32_t>(sample.trained_tokens()),
                      sample.grouped});
}

std::string SampleStore::record(int64_t number) const {
  const Entry& e = entries_.at(static_cast<size_t>(number));
  if (!mapped_) return scratch_->read(e.offset, e.bytes);
  return {reinterpret_cast<const char*>(mapped_->data()) + e.offset, static_cast<size_t>(e.bytes)};
}

Sample SampleStore::get(int64_t number) const {
  try {
    return unpack_sample(record(number));
  } catch (const Error& error) {
    fail(error.at, mapped_ ? mapped_->path().string() : "scratch file", ", sample ", number, ": ", error.what(),
         mapped_ ? "; make the cache anew (apus export --to_cached_dataset true)" : "");
  }
}

std::vector<int64_t> SampleStore::lengths() const {
  std::vector<int64_t> out;
  out.reserve(entries_.size());
  for (const Entry& e : entries_) out.push_back(e.tokens);
  return out;
}

std::vector<int64_t> SampleStore::groups() const {
  std::vector<int64_t> first;
  for (int64_t i = 0; i < size(); ++i)
    if (first.empty() || !entries_[static_cast<size_t>(i)].grouped) first.push_back(i);
  first.push_back(size());
  return first;
}

void SampleStore::append(const SampleStore& other) {
  require(!mapped_, Fault::Bug, "a cache on disk is not added to");
  for (int64_t i = 0; i < other.size(); ++i) {
    Entry e = other.entries_[static_cast<size_t>(i)];
    e.offset = scratch_->append(other.record(i));
    entries_.push_back(e);
  }
}

// samples.bin: magic, the records, the entries, their checksum, their number.
void SampleStore::save(const fs::path& folder, const Json& made_with) const {
  make_writable_dir(folder);
  AtomicFile file(folder / "samples.bin");
  file.write(kMagic);
  std::string index;
  int64_t offset = static_cast<int64_t>(kMagic.size()), tokens = 0, trained = 0;
  for (int64_t i = 0; i < size(); ++i) {
    Entry e = entries_[static_cast<size_t>(i)];
    file.write(record(i));
    e.offset = offset;
    offset += e.bytes;
    tokens += e.tokens;
    trained += e.trained;
    put(index, e.offset);
    put(index, e.bytes);
    put(index, e.tokens);
    put(index, e.trained);
    put(index, e.grouped);
  }
  const uint32_t sum = checksum(index);
  put(index, sum);
  put<uint64_t>(index, static_cast<uint64_t>(size()));
  file.write(index);
  file.commit();
  const Json info = {{"format", "apus samples"}, {"version", kVersion},       {"samples", size()},
                     {"tokens", tokens},         {"trained_tokens", trained}, {"made_with", made_with}};
  write_file_atomic(folder / "info.json", json_text(info, 2) + "\n");
}

SampleStore SampleStore::open(const fs::path& folder, const Json& made_with) {
  require(fs::exists(folder / "samples.bin") && fs::exists(folder / "info.json"), Fault::Usage, "--cached_dataset ",
          folder.string(),
          ": no samples.bin and info.json in it; give the folder that apus export --to_cached_dataset wrote (its train "
          "or val)");
  const Json info = parse_json(read_file(folder / "info.json", 1 << 20), (folder / "info.json").string());
  require(info.value("version", 0) == kVersion, Fault::Usage, folder.string(), ": a cache of version ",
          info.value("version", 0), ", this program reads ", kVersion,
          "; make the cache anew (apus export --to_cached_dataset true)");
  if (!made_with.is_null()) {
    const auto wrong = differences(info.value("made_with", Json()), made_with);
    require(wrong.empty(), Fault::Usage, "--cached_dataset ", folder.string(),
            " was made in another way: ", join(wrong, "; "),
            ". Give the same options, or make it anew (apus export --to_cached_dataset true)");
  }
  SampleStore store;
  store.mapped_ = std::make_shared<MappedFile>(folder / "samples.bin");
  const std::string_view bytes(reinterpret_cast<const char*>(store.mapped_->data()),
                               static_cast<size_t>(store.mapped_->size()));
  const std::string where = (folder / "samples.bin").string();
  constexpr size_t kEntry = 21, kTail = 12;
  require(bytes.size() >= kMagic.size() + kTail && bytes.starts_with(kMagic), Fault::Data, where,
          ": not a cache of samples, or cut short");
  const auto count = Unpacker(bytes.substr(bytes.size() - 8)).value<uint64_t>();
  require(count <= (bytes.size() - kMagic.size() - kTail) / kEntry, Fault::Data, where,
          ": damaged (more samples than it can hold)");
  const size_t index_at = bytes.size() - kTail - static_cast<size_t>(count) * kEntry;
  const std::string_view index = bytes.substr(index_at, static_cast<size_t>(count) * kEntry);
  require(Unpacker(bytes.substr(bytes.size() - kTail)).value<uint32_t>() == checksum(index), Fault::Data, where,
          ": damaged (the checksum of its index differs)");
  Unpacker in(index);
  for (uint64_t i = 0; i < count; ++i) {
    Entry e{};
    e.offset = in.value<int64_t>();
    e.bytes = in.value<int32_t>();
    e.tokens = in.value<int32_t>();
    e.trained = in.value<int32_t>();
    e.grouped = in.value<uint8_t>();
    require(e.offset >= 0 && e.bytes >= 0 && static_cast<size_t>(e.offset) <= index_at &&
                static_cast<size_t>(e.bytes) <= index_at - static_cast<size_t>(e.offset),
            Fault::Data, where, ": damaged (sample ", i, " lies outside)");
    store.entries_.push_back(e);
  }
  return store;
}

}  // namespace apus
