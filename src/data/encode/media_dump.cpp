// SPDX-License-Identifier: Apache-2.0
#include "data/encode/media_dump.h"

#include <algorithm>

#include "base/files.h"

namespace apus {

namespace {

using Contents = std::vector<const MediaContent*>;

template <class T>
std::string_view as_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// [clips, mel, frames], and which frames there are.
std::vector<float> padded_clips(const Contents& clips, std::vector<int64_t>& shape, std::vector<int64_t>& mask) {
  int64_t longest = 0;
  for (const MediaContent* clip : clips) longest = std::max(longest, clip->shape[1]);
  const int64_t mels = clips[0]->shape[0];
  shape = {static_cast<int64_t>(clips.size()), mels, longest};
  std::vector<float> out;
  for (const MediaContent* clip : clips) {
    for (int64_t m = 0; m < mels; ++m) {
      const auto from = clip->values.begin() + m * clip->shape[1];
      out.insert(out.end(), from, from + clip->shape[1]);
      out.resize(out.size() + static_cast<size_t>(longest - clip->shape[1]));
    }
    for (int64_t f = 0; f < longest; ++f) mask.push_back(f < clip->shape[1]);
  }
  return out;
}

}  // namespace

void MediaDump::put(const std::string& name, const char* type, std::vector<int64_t> shape, std::string_view data) {
  tensors_.push_back({name, type, std::move(shape), data_.append(data), static_cast<int64_t>(data.size())});
}

void MediaDump::add(int64_t row, const RowMedia& media, const MediaProcessor& processor) {
  const std::string behind = str('.', row);
  for (const MediaType type : {MediaType::Image, MediaType::Video, MediaType::Audio}) {
    Contents contents;
    for (const RowMedium& medium : media)
      for (const MediaContent* content : {medium.media.content.get(), medium.media.sound.get()})
        if (content && content->type == type) contents.push_back(content);
    if (contents.empty()) continue;
    if (type == MediaType::Audio) {
      std::vector<int64_t> shape, mask;
      const std::vector<float> values = padded_clips(contents, shape, mask);
      put(processor.values_name(type) + behind, "F32", shape, as_bytes(values));
      put("feature_attention_mask" + behind, "I64", {shape[0], shape[2]}, as_bytes(mask));
      continue;
    }
    std::vector<int64_t> shape = contents[0]->shape, grids;
    shape[0] = 0;
    std::string values;
    for (const MediaContent* content : contents) {
      shape[0] += content->shape[0];
      values += as_bytes(content->values);
      grids.insert(grids.end(), content->grid.begin(), content->grid.end());
    }
    put(processor.values_name(type) + behind, "F32", shape, values);
    if (const std::string grid = processor.grid_name(type); !grid.empty())
      put(grid + behind, "I64", {static_cast<int64_t>(contents.size()), 3}, as_bytes(grids));
    if (type == MediaType::Video && contents[0]->seconds_per_grid > 0) {
      std::vector<float> seconds;
      for (const MediaContent* content : contents) seconds.push_back(static_cast<float>(content->seconds_per_grid));
      put("second_per_grid_ts" + behind, "F32", {static_cast<int64_t>(seconds.size())}, as_bytes(seconds));
    }
  }
}

void MediaDump::write() const {
  Json header = Json::object();
  int64_t end = 0;
  for (const Tensor& t : tensors_) {
    header[t.name] = {{"dtype", t.type}, {"shape", t.shape}, {"data_offsets", {end, end + t.bytes}}};
    end += t.bytes;
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto length = static_cast<uint64_t>(text.size());
  AtomicFile out(file_);
  out.write(&length, sizeof length);
  out.write(text);
  for (const Tensor& t : tensors_) out.write(data_.read(t.begin, t.bytes));
  out.commit();
}

}  // namespace apus
