// SPDX-License-Identifier: Apache-2.0
#include "data/rows/row_stream.h"

#include <algorithm>

#include "base/random.h"

namespace apus {

DatasetStream::DatasetStream(DatasetRef ref, std::vector<std::filesystem::path> files,
                             const NormalizeOptions& normalize, RejectLog& rejects, std::string encoding)
    : ref_(std::move(ref)),
      files_(std::move(files)),
      normalize_(normalize),
      rejects_(rejects),
      encoding_(std::move(encoding)) {}

bool DatasetStream::next_raw(Row& row) {
  for (; file_ < files_.size(); ++file_, reader_.reset()) {
    if (!reader_) reader_ = open_reader(files_[file_], encoding_);
    while (true) {
      try {
        if (reader_->next(row)) return true;
        break;
      } catch (const RowError& error) {
        rejects_.add(error);
      }
    }
  }
  return false;
}

bool DatasetStream::next(Row& row) {
  if (limit_ && given_ >= *limit_) return false;
  while (next_raw(row)) {
    try {
      row.value = normalize_row(row, normalize_, [&](const std::string& text) { rejects_.remark(row.origin, text); });
      ++given_;
      return true;
    } catch (const RowError& error) {
      rejects_.add(error, &row.value);
    }
  }
  return false;
}

void DatasetStream::rewind() {
  reader_.reset();
  file_ = 0;
  given_ = 0;
}

Json DatasetStream::position() const {
  const ReadPosition at = reader_ ? reader_->position() : ReadPosition{};
  return {{"file", file_}, {"row", at.row}, {"offset", at.offset}, {"line", at.line}, {"given", given_}};
}

void DatasetStream::restore(const Json& position) {
  rewind();
  file_ = position.at("file").get<size_t>();
  given_ = position.at("given").get<int64_t>();
  require(file_ <= files_.size(), Fault::Data, "dataset ", ref_.text,
          " has fewer files than when the position was saved");
  const ReadPosition at{position.at("row").get<int64_t>(), position.at("offset").get<int64_t>(),
                        position.at("line").get<int64_t>()};
  if (file_ == files_.size() || at.row == 0) return;
  reader_ = open_reader(files_[file_], encoding_);
  reader_->seek(at);
}

Stopping stopping_named(const std::string& name) {
  if (name == "first_exhausted") return Stopping::FirstExhausted;
  require(name == "all_exhausted", Fault::Usage, "--stopping_strategy ", name,
          ": first_exhausted and all_exhausted are known");
  return Stopping::AllExhausted;
}

Interleave::Interleave(std::vector<double> probabilities, Stopping stopping, uint64_t seed)
    : stopping_(stopping), seed_(seed), ended_(probabilities.size()) {
  double sum = 0;
  for (const double p : probabilities) {
    require(p >= 0 && p < 1e9, Fault::Usage, "--interleave_prob: ", p, " is not a share");
    cumulative_.push_back(sum += p);
  }
  require(sum > 0, Fault::Usage, "--interleave_prob: all shares are 0");
  for (double& c : cumulative_) c /= sum;
  for (size_t i = 0; i < probabilities.size(); ++i)
    if (probabilities[i] == 0) ended_[i] = stopping == Stopping::AllExhausted;  // never drawn, so never waited for
}

bool Interleave::over() const {
  return stopping_ == Stopping::AllExhausted ? std::all_of(ended_.begin(), ended_.end(), [](bool e) { return e; })
                                             : std::any_of(ended_.begin(), ended_.end(), [](bool e) { return e; });
}

std::optional<size_t> Interleave::next() {
  if (over()) return std::nullopt;
  const double u = Random(seed_, stream_named("data.interleave"), drawn_++).uniform();
  return static_cast<size_t>(std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, u) - cumulative_.begin());
}

void Interleave::ended(size_t source) { ended_[source] = true; }

Json Interleave::position() const { return {{"drawn", drawn_}, {"ended", std::vector<bool>(ended_)}}; }

void Interleave::restore(const Json& position) {
  drawn_ = position.at("drawn").get<uint64_t>();
  const auto ended = position.at("ended").get<std::vector<bool>>();
  require(ended.size() == ended_.size(), Fault::Data,
          "the mixture of datasets is not the one whose position was saved (", ended.size(), " then, ", ended_.size(),
          " now)");
  ended_ = ended;
}

MixedStream::MixedStream(std::vector<DatasetStream> sources, std::vector<double> probabilities, Stopping stopping,
                         uint64_t seed)
    : sources_(std::move(sources)) {
  if (probabilities.empty()) return;
  require(probabilities.size() == sources_.size(), Fault::Usage, "--interleave_prob has ", probabilities.size(),
          " shares for ", sources_.size(), " datasets");
  interleave_.emplace(std::move(probabilities), stopping, seed);
  for (auto& source : sources_) {
    Row row;
    require(source.next(row), Fault::Data, "dataset ", source.ref().text, " has no usable row");
    ahead_.push_back(std::move(row));
  }
}

bool MixedStream::next(Row& row) {
  if (!interleave_) {
    for (; current_ < sources_.size(); ++current_)
      if (sources_[current_].next(row)) return true;
    return false;
  }
  const auto which = interleave_->next();
  if (!which) return false;
  DatasetStream& source = sources_[*which];
  row = std::move(*ahead_[*which]);
  Row following;
  if (!source.next(following)) {
    interleave_->ended(*which);
    source.rewind();
    require(source.next(following), Fault::Data, "dataset ", source.ref().text, " has changed while it was read");
  }
  ahead_[*which] = std::move(following);
  return true;
}

// The rows held ahead are part of it; one per dataset.
Json MixedStream::position() const {
  Json out = {{"current", current_}, {"sources", Json::array()}};
  for (const auto& source : sources_) out["sources"].push_back(source.position());
  if (!interleave_) return out;
  out["interleave"] = interleave_->position();
  out["ahead"] = Json::array();
  for (const auto& row : ahead_)
    out["ahead"].push_back({{"file", *row->origin.file},
                            {"line", row->origin.line},
                            {"is_row", row->origin.is_row},
                            {"value", row->value}});
  return out;
}

void MixedStream::restore(const Json& position) {
  const Json& saved = position.at("sources");
  require(saved.size() == sources_.size() && position.contains("interleave") == interleave_.has_value(), Fault::Data,
          "the datasets are not those whose position was saved (", saved.size(), " then, ", sources_.size(),
          " now, or --interleave_prob was changed)");
  current_ = position.at("current").get<size_t>();
  for (size_t i = 0; i < sources_.size(); ++i) sources_[i].restore(saved[i]);
  if (!interleave_) return;
  interleave_->restore(position.at("interleave"));
  for (size_t i = 0; i < ahead_.size(); ++i) {
    const Json& row = position.at("ahead").at(i);
    ahead_[i] = Row{row.at("value"),
                    {std::make_shared<const std::string>(row.at("file").get<std::string>()),
                     row.at("line").get<int64_t>(), row.at("is_row").get<bool>()}};
  }
}

}  // namespace apus
