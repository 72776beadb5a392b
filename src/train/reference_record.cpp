// SPDX-License-Identifier: Apache-2.0
#include "train/reference_record.h"

#include <ATen/ops/zeros.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "device/agree.h"

namespace apus {
namespace {

// Calls visit(digest, places of the labels in the batch) for each sequence.
void each_sequence(const Batch& batch, const std::function<void(uint64_t, const std::vector<int64_t>&)>& visit) {
  const at::Tensor id_T = batch.id_T.cpu().contiguous(), label_T = batch.label_T.cpu().contiguous();
  const auto *id = id_T.data_ptr<int64_t>(), *label = label_T.data_ptr<int64_t>();
  int64_t at = 0;
  for (const int32_t length : batch.step.length_q) {
    uint64_t digest = stream_named("reference record");
    std::vector<int64_t> places;
    for (const int64_t end = at + length; at < end; ++at) {
      digest = mix(digest, static_cast<uint64_t>(id[at]), label[at] >= 0);
      if (label[at] >= 0) places.push_back(at);
    }
    visit(digest, places);
  }
}

template <class Number>
void append(std::string& text, const Number* numbers, size_t count) {
  text.append(reinterpret_cast<const char*>(numbers), count * sizeof(Number));
}

}  // namespace

void ReferenceRecord::add(const Batch& batch, const at::Tensor& logprob_T) {
  const at::Tensor host_T = logprob_T.cpu().to(at::kFloat).contiguous();
  const float* logprob = host_T.data_ptr<float>();
  each_sequence(batch, [&](uint64_t digest, const std::vector<int64_t>& places) {
    std::vector<float>& values = known_[digest];
    values.clear();
    for (const int64_t place : places) values.push_back(logprob[place]);
  });
}

at::Tensor ReferenceRecord::logprobs(const Batch& batch) const {
  at::Tensor out_T = at::zeros(batch.id_T.sizes(), at::TensorOptions().dtype(at::kFloat));
  float* out = out_T.data_ptr<float>();
  each_sequence(batch, [&](uint64_t digest, const std::vector<int64_t>& places) {
    const auto found = known_.find(digest);
    require(found != known_.end() && found->second.size() == places.size(), Fault::Bug,
            "the reference was not asked of a sequence before the run");
    for (size_t i = 0; i < places.size(); ++i) out[places[i]] = found->second[i];
  });
  return out_T.to(batch.id_T.device());
}

std::string ReferenceRecord::packed() const {
  std::string out;
  for (const auto& [digest, values] : known_) {
    const uint64_t count = values.size();
    append(out, &digest, 1), append(out, &count, 1), append(out, values.data(), values.size());
  }
  return out;
}

// False: the text ends in the middle.
bool ReferenceRecord::unpack(const std::string& text, size_t at) {
  while (at < text.size()) {
    uint64_t head[2];
    if (text.size() - at < sizeof(head)) return false;
    std::memcpy(head, text.data() + at, sizeof(head));
    at += sizeof(head);
    if (head[1] > (text.size() - at) / sizeof(float)) return false;
    std::vector<float>& values = known_[head[0]];
    values.resize(head[1]);
    std::memcpy(values.data(), text.data() + at, values.size() * sizeof(float));
    at += values.size() * sizeof(float);
  }
  return true;
}

void ReferenceRecord::share(Comm& ranks) {
  if (ranks.size() == 1) return;
  for (const std::string& text : gather_text(packed(), ranks))
    require(unpack(text, 0), Fault::Bug, "a rank's record of the reference is cut");
}

void ReferenceRecord::save(const std::filesystem::path& file, const std::string& of) const {
  write_file_atomic(file, of + '\0' + packed());
}

bool ReferenceRecord::load(const std::filesystem::path& file, const std::string& of) {
  std::error_code code;
  if (!std::filesystem::exists(file, code)) return false;
  const std::string text = read_file(file, int64_t{1} << 40), head = of + '\0';
  if (text.compare(0, head.size(), head) != 0) return false;
  const bool whole = unpack(text, head.size());
  if (!whole) known_.clear();
  return whole;
}

bool ReferenceRecord::knows(const Batch& batch) const {
  bool all = true;
  each_sequence(batch, [&](uint64_t digest, const std::vector<int64_t>& places) {
    const auto found = known_.find(digest);
    all = all && found != known_.end() && found->second.size() == places.size();
  });
  return all;
}

}  // namespace apus
