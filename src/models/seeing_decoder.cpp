// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens of the step, D hidden, M rows of media, R of them in the step.
#include "models/seeing_decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_fill.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "media/mosaic.h"
#include "models/seeing_rows.h"
#include "nn/training_step.h"

namespace apus {

namespace {
// The tokens of the step's sequences that have media, from each one's first on.
class Texts {
 public:
  Texts(const Inputs& in, const Step& s) : in_(in) {
    if (!in.text.empty()) return;
    const at::Tensor host = in.id_T.to(at::kCPU, at::kInt).contiguous();
    const int32_t* id = host.data_ptr<int32_t>();
    for (size_t i = 0; i < s.length_q.size(); ++i) {
      require(s.begin_q.empty() || s.begin_q[i] == 0, Fault::Bug, "the beginning of a text with media is missing");
      read_.emplace_back(id, id + s.length_q[i]);
      id += s.length_q[i];
    }
  }
  std::span<const int32_t> operator[](size_t i) const { return in_.text.empty() ? read_[i] : in_.text[i]; }

 private:
  const Inputs& in_;
  std::vector<std::vector<int32_t>> read_;
};

// A medium as one adapter's tokens see it: its rows, and where they go in the step.
struct Wanted {
  const MediaContent* content;
  std::string adapter;
  bool beside_pictures;  // a sound to which it matters (HearingSpec::cascade)
  std::vector<int64_t> source, target;
};

// Equal media are wanted once, as often as they stand in the texts.
std::vector<Wanted> wanted_media(const Inputs& in, const Step& s, const SeeingSpec& spec) {
  const Texts texts(in, s);
  const std::vector<std::string> adapter = adapter_of_rows(s, in.id_T.size(0));
  std::vector<Wanted> all;
  std::map<std::tuple<std::string, std::string, bool>, size_t> known;
  int64_t row = 0;  // of the sequence's first token in the step
  for (size_t i = 0; i < in.media.size(); row += s.length_q[i++]) {
    const int64_t begin = begin_of(s, i), end = begin + s.length_q[i];
    const std::string name = adapter.empty() || s.length_q[i] == 0 ? "" : adapter[static_cast<size_t>(row)];
    const bool pictures = spec.hearing && spec.hearing->cascade &&
                          std::any_of(in.media[i].begin(), in.media[i].end(), [](const MediaItem& item) {
                            return item.content && item.content->type != MediaType::Audio;
                          });
    for (const MediaItem& item : in.media[i]) {
      if (item.begin >= end || item.begin + item.length <= begin) continue;
      const std::vector<int64_t> own = own_tokens(texts[i], item, spec);
      const bool beside = pictures && item.content->type == MediaType::Audio;
      const auto [place, added] = known.try_emplace({name, item.content->digest, beside}, all.size());
      if (added) all.push_back({item.content.get(), name, beside, {}, {}});
      Wanted& wanted = all[place->second];
      for (size_t k = 0; k < own.size(); ++k) {
        if (own[k] < begin || own[k] >= end) continue;
        wanted.source.push_back(static_cast<int64_t>(k)), wanted.target.push_back(row + own[k] - begin);
      }
    }
  }
  std::erase_if(all, [](const Wanted& w) { return w.target.empty(); });
  return all;
}

bool is_heard(const MediaContent& content) { return content.type == MediaType::Audio; }

at::Tensor joined(const std::vector<at::Tensor>& parts) { return parts.size() == 1 ? parts[0] : at::cat(parts, 0); }

Sight part_of(const Sight& all, int64_t first, int64_t count) {
  Sight part{all.row_MD.narrow(0, first, count).clone(), {}};
  for (const at::Tensor& late : all.late_MD) part.late_MD.push_back(late.narrow(0, first, count).clone());
  return part;
}
}  // namespace

SeeingDecoder::SeeingDecoder(DecoderSpec s) : Decoder(std::move(s)), parts_(child<TowerParts>("", parts_of(seeing()))) {
  if (seeing().page)
    page_.emplace(*seeing().page, parts_);
  else if (seeing().canvas)
    canvas_.emplace(*seeing().canvas, parts_);
  else if (seeing().mobile)
    mobile_.emplace(*seeing().mobile, parts_);
  else if (seeing().vision.width > 0)
    tower_.emplace(seeing().vision, parts_);
  if (seeing().vision.pooler.heads > 0) pooler_.emplace(seeing().vision, parts_);
  if (seeing().hearing && seeing().hearing->conformer)
    conformer_.emplace(*seeing().hearing->conformer, parts_);
  else if (seeing().hearing && seeing().hearing->cascade)
    cascade_.emplace(*seeing().hearing->cascade, parts_);
  else if (seeing().hearing)
    ears_.emplace(*seeing().hearing, parts_);
  for (const auto& form : seeing().own_words) own_words_.emplace_back(*form, parts_);
  if (const auto& more = seeing().media_words; more.count > 0) media_words_ = &parts_.bare(more.table);
  if (seeing().mosaic && !seeing().vision.newline.empty()) newline_ = &parts_.bare(seeing().vision.newline);
  if (seeing().mosaic && !seeing().vision.separator.empty()) separator_ = &parts_.bare(seeing().vision.separator);
}

bool SeeingDecoder::leaves_unread(const std::string& disk_name) const {
  // A head that pools, as timm and transformers call it.
  for (const char* head : {".attn_pool.", ".head."})
    if (disk_name.starts_with(seeing().vision.name + head)) return true;
  // CLIP reads SAM's rows in place of patches.
  if (seeing().page && seeing().page->clip)
    if (disk_name == seeing().page->clip->name + ".embeddings.patch_embedding.weight") return true;
  return Decoder::leaves_unread(disk_name);
}

at::Tensor SeeingDecoder::positions(const Inputs& in, const Step& s) const {
  if (in.media.empty() || seeing().time == TimeRule::Text) return Decoder::positions(in, s);
  const Texts texts(in, s);
  const bool numbered = seeing().time == TimeRule::Numbered;
  if (numbered && wanted_media(in, s, seeing()).empty()) return Decoder::positions(in, s);
  const int64_t tokens = in.id_T.size(0), axes = numbered ? 4 : 3;
  at::Tensor position = at::empty({axes, tokens}, at::kFloat);
  int64_t row = 0;
  for (size_t i = 0; i < s.length_q.size(); row += s.length_q[i++]) {
    const int64_t begin = begin_of(s, i);
    const bool plain = in.media[i].empty();
    const MediaPositions all = plain ? MediaPositions() : media_positions(texts[i], in.media[i], seeing());
    for (int64_t axis = 0; axis < axes; ++axis)
      for (int64_t n = 0; n < s.length_q[i]; ++n)
        position.data_ptr<float>()[axis * tokens + row + n] =
            plain ? static_cast<float>(begin + n) : all[static_cast<size_t>(axis)][static_cast<size_t>(begin + n)];
  }
  return position.to(in.id_T.device(), seeing().time == TimeRule::Exact ? at::kFloat : at::kLong);
}

namespace {
struct AheadRows {
  std::vector<int64_t> row, key, sequence;
  std::vector<int32_t> cu_q = {0}, cu_k = {0};
  int64_t max_q = 0, max_k = 0;
  // With a cache: of each key its place in the table of blocks, and in its block.
  std::vector<int64_t> block, place;
  bool sees_far = false;  // some see more than what stands before their run's end
  // Tokens [begin, end) of a sequence, whose first token stands in the step's row `first` less those read before, see
  // all before them, and those of `far` that stand behind them.
  void add(int64_t begin, int64_t end, int64_t first, int64_t of, const std::vector<int64_t>& far = {}) {
    for (int64_t n = begin; n < end; ++n) row.push_back(first + n);
    const size_t before = key.size();
    const auto see = [&](int64_t n) { key.push_back(first + n), place.push_back(n); };
    for (int64_t n = 0; n < end; ++n) see(n);
    for (auto n = std::lower_bound(far.begin(), far.end(), end); n != far.end(); ++n) see(*n), sees_far = true;
    const auto keys = static_cast<int64_t>(key.size() - before);
    block.resize(key.size(), of);
    sequence.push_back(of);
    cu_q.push_back(cu_q.back() + static_cast<int32_t>(end - begin));
    cu_k.push_back(cu_k.back() + static_cast<int32_t>(keys));
    max_q = std::max(max_q, end - begin), max_k = std::max(max_k, keys);
  }
  // Where the keys lie in the cache.
  at::Tensor slots(const Step& s) {
    const int64_t size = s.cache->spec().block_size, columns = s.block_table.size(1);
    for (size_t i = 0; i < key.size(); ++i) block[i] = block[i] * columns + place[i] / size, place[i] %= size;
    const at::Device device = s.block_table.device();
    const at::Tensor of_key = at::index_select(s.block_table.flatten(), 0, indices(block, device)).to(at::kLong);
    return of_key * size + indices(place, device);
  }
};
}  // namespace

// Which tokens experts take as media's (MixtureSpec::of_media): in texts with media, theirs and those around them.
void SeeingDecoder::tell_kinds(const Inputs& in, Step& s) const {
  s.kinds = nullptr;
  if (seeing().media_marks.empty() || in.media.empty()) return;
  const Texts texts(in, s);
  const std::vector<int64_t>& marks = seeing().media_marks;
  const auto is_media = [&](int32_t token) {
    return token == seeing().image_token || token == seeing().video_token ||
           std::find(marks.begin(), marks.end(), token) != marks.end();
  };
  std::vector<int64_t> media, text;
  int64_t row = 0;
  for (size_t i = 0; i < s.length_q.size(); ++i)
    for (int64_t n = begin_of(s, i), end = n + s.length_q[i]; n < end; ++n, ++row)
      (!in.media[i].empty() && is_media(texts[i][static_cast<size_t>(n)]) ? media : text).push_back(row);
  if (media.empty()) return;
  const at::Device device = in.id_T.device();
  s.kinds = std::make_shared<const TokenKinds>(TokenKinds{indices(media, device), indices(text, device)});
}

void SeeingDecoder::look_ahead(const Inputs& in, Step& s) const {
  tell_kinds(in, s);
  if (reads_beside()) tell_pictures(in, s);
  s.ahead = nullptr;
  if (!seeing().sees_ahead || in.media.empty()) return;
  const TrainingStep& training = training_of(s);
  require(!training.groups && !training.key_K.defined(), Fault::Usage,
          "in this model the tokens of an image see each other, which --tuner_type longlora and --share_prefix true do "
          "not do: leave them out");
  const Texts texts(in, s);
  const std::vector<int64_t>& marks = seeing().marks_ahead;
  const auto is_seen = [&](int32_t token) {
    return token == seeing().image_token || token == seeing().video_token ||
           std::find(marks.begin(), marks.end(), token) != marks.end();
  };
  AheadRows rows;
  int64_t row = 0;
  for (size_t i = 0; i < s.length_q.size(); row += s.length_q[i++]) {
    if (in.media[i].empty()) continue;
    const std::span<const int32_t> text = texts[i];
    const int64_t begin = begin_of(s, i), end = begin + s.length_q[i];
    if (seeing().sees_question) {
      int64_t reach = 0;
      for (const MediaItem& m : in.media[i]) reach = std::max(reach, m.begin + m.length);
      if (begin < reach) rows.add(begin, std::min(end, reach), row - begin, static_cast<int64_t>(i));
      continue;
    }
    std::vector<int64_t> far;  // those of all media
    for (int64_t n = begin; n < end && !marks.empty(); ++n)
      if (is_seen(text[static_cast<size_t>(n)])) far.push_back(n);
    for (int64_t n = begin; n < end; ++n) {
      const int64_t first = n;
      while (n < end && is_seen(text[static_cast<size_t>(n)])) ++n;
      if (n > first) rows.add(first, n, row - begin, static_cast<int64_t>(i), far);
    }
  }
  if (rows.row.empty()) return;
  const at::Device device = in.id_T.device();
  const auto counts = [&](const std::vector<int32_t>& values) { return at::tensor(values, at::kInt).to(device); };
  SeenAhead ahead{.row_R = indices(rows.row, device),
                  .cu_q = counts(rows.cu_q),
                  .cu_k = counts(rows.cu_k),
                  .max_q = rows.max_q,
                  .max_k = rows.max_k,
                  .key_K = !s.cache        ? indices(rows.key, device)
                           : rows.sees_far ? rows.slots(s)
                                           : at::Tensor(),
                  .sequence = indices(rows.sequence, device)};
  s.ahead = std::make_shared<const SeenAhead>(std::move(ahead));
}

// All images and videos, or all sounds.
Sight SeeingDecoder::see(const Contents& contents, const VisionTower::StepOf& step_of, bool beside_pictures) const {
  const bool heard = is_heard(*contents[0]);
  const at::Tensor& like = numbers_like(heard);
  std::vector<at::Tensor> numbers;
  std::vector<Grid> grids;
  for (const MediaContent* c : contents) {
    tokens_for(*c, seeing());  // refuses what does not fit
    const int64_t wanted = std::accumulate(c->shape.begin(), c->shape.end(), int64_t{1}, std::multiplies<>());
    require(static_cast<int64_t>(c->values.size()) == wanted, Fault::Data, "the ", media_name(c->type), " has ",
            c->values.size(), " numbers, its shape asks for ", wanted);
    numbers.push_back(at::from_blob(const_cast<float*>(c->values.data()), c->shape, at::kFloat));
    if (!is_heard(*c) && seeing().vision.tile > 0 && !mobile_)
      numbers.back() = patches_of_planes(numbers.back(), seeing().vision);
    for (const Grid& grid : grids_of(*c, seeing())) grids.push_back(grid);
  }
  // Copies: the backward pass may read them when the content is gone.
  const auto copied = [&](const at::Tensor& t) {
    return t.to(at::TensorOptions(like.device()).dtype(like.scalar_type()), /*non_blocking=*/false, /*copy=*/true);
  };
  const bool again = again_ && at::GradMode::is_enabled() && trains_layers(heard);
  if (heard || mobile_) {
    for (at::Tensor& each : numbers) each = copied(each);
    if (!heard) return {(*mobile_)(numbers, step_of, again), {}};
    if (cascade_) return {(*cascade_)(numbers, step_of, again, beside_pictures), {}};
    return {conformer_ ? (*conformer_)(numbers, step_of, again) : (*ears_)(numbers, step_of, again), {}};
  }
  if (page_) return {(*page_)(at::cat(numbers, 0).to(like.device(), like.scalar_type()), contents, step_of, again), {}};
  if (canvas_)
    return {(*canvas_)(at::cat(numbers, 0).to(like.device(), like.scalar_type()), contents, step_of, again), {}};
  std::vector<bool> pooled;  // a mosaic's content is one grid
  FrameParts parts;
  for (const MediaContent* c : contents) {
    const MosaicForm* mosaic = seeing().mosaic.get();
    if (mosaic && mosaic->frames_pooled) pooled.push_back(c->type == MediaType::Video);
    if (!mosaic || mosaic->cut_patch == 0) continue;
    for (const auto& each : mosaic_patches({c->came_as[1], c->came_as[0]}, *mosaic)) parts.push_back(each);
  }
  Sight sight =
      (*tower_)(at::cat(numbers, 0).to(like.device(), like.scalar_type()), grids, step_of, again, pooled, parts);
  if (seeing().mosaic) sight.row_MD = in_mosaics(sight.row_MD, contents);
  if (pooler_) sight.row_MD = (*pooler_)(sight.row_MD, contents, step_of);
  return sight;
}

Sight SeeingDecoder::see(const MediaContent& content) const {
  return see({&content}, [](int64_t) { return Step{}; });
}

// One behind the other. In inference what is known is not computed again.
Sight SeeingDecoder::features(const Contents& contents, const Group& group, const Step& s) const {
  const at::Device device = numbers_like(group.heard).device();
  const auto step_of = [&](int64_t rows) { return tower_step(s, group.adapter, rows, device); };
  if (!s.cache) return see(contents, step_of, group.beside_pictures);
  const std::string begin = group.adapter + (group.beside_pictures ? "\nbeside pictures\n" : "\n");
  const auto key = [&](const MediaContent* c) { return begin + c->digest; };
  Contents fresh;
  std::vector<Sight> of(contents.size());
  for (size_t i = 0; i < contents.size(); ++i) {
    if (const Sight* known = known_.find(key(contents[i])))
      of[i] = *known;
    else
      fresh.push_back(contents[i]);
  }
  if (!fresh.empty()) {
    const Sight all = see(fresh, step_of, group.beside_pictures);
    int64_t first = 0;
    for (size_t i = 0; i < contents.size(); ++i) {
      if (of[i].row_MD.defined()) continue;
      const int64_t count = tokens_for(*contents[i], seeing());
      of[i] = part_of(all, first, count);
      known_.put(key(contents[i]), of[i]);
      first += count;
    }
  }
  Sight all;
  std::vector<at::Tensor> rows;
  for (const Sight& each : of) rows.push_back(each.row_MD);
  all.row_MD = joined(rows);
  for (size_t d = 0; d < of[0].late_MD.size(); ++d) {
    std::vector<at::Tensor> late;
    for (const Sight& each : of) late.push_back(each.late_MD[d]);
    all.late_MD.push_back(joined(late));
  }
  return all;
}

// Tokens that begin and end media have rows of the tower's words.
at::Tensor SeeingDecoder::with_marks(at::Tensor x_TD, const Inputs& in, const Step& s) const {
  const Texts texts(in, s);
  const std::vector<int64_t>& marks = seeing().vision.mark_tokens;
  std::vector<int64_t> mark, target;
  int64_t row = 0;
  for (size_t i = 0; i < in.media.size(); row += s.length_q[i++]) {
    if (in.media[i].empty()) continue;
    for (int64_t n = 0; n < s.length_q[i]; ++n) {
      const auto found = std::find(marks.begin(), marks.end(), texts[i][static_cast<size_t>(begin_of(s, i) + n)]);
      if (found == marks.end()) continue;
      mark.push_back(found - marks.begin()), target.push_back(row + n);
    }
  }
  if (mark.empty()) return x_TD;
  const at::Tensor rows = tower_->marks(indices(mark, tower_->numbers_like().device()));
  return at::index_copy(x_TD, 0, indices(target, x_TD.device()), rows.to(x_TD.device(), x_TD.scalar_type()));
}

// The tokens' own embeddings, whatever stands for media.
at::Tensor SeeingDecoder::words(const at::Tensor& id_T, const Step& s) const {
  const int64_t vocab = shape().vocab;
  if (has_own_tokens(seeing())) return embed_words(Inputs(id_T.clamp_min(0)), s);
  if (!media_words_) {
    at::Tensor x_TD = embed_words(Inputs(id_T), s);
    for (const Embedder& each : own_words_)
      x_TD = each.with_own(x_TD, id_T, tower_step(s, "", id_T.size(0), each.numbers_like().device()));
    return x_TD;
  }
  const at::Tensor x_TD = embed_words(Inputs(id_T.clamp_max(vocab - 1)), s);
  const at::Tensor of_media_TD = at::index_select(media_words_->data, 0, (id_T - vocab).clamp_min(0));
  return at::where((id_T >= vocab).unsqueeze(1), of_media_TD, x_TD);
}

// What towers made of media stands where their tokens do.
at::Tensor SeeingDecoder::with_rows(const at::Tensor& x_TD, const at::Tensor& target_R,
                                    const at::Tensor& row_RD) const {
  return seeing().added ? at::index_add(x_TD, 0, target_R, row_RD) : at::index_copy(x_TD, 0, target_R, row_RD);
}

at::Tensor SeeingDecoder::embed(const Inputs& in, const Step& s) const {
  at::Tensor x_TD = words(in.id_T, s);
  if (reads_beside()) {
    if (!s.pictures || s.pictures->idle) x_TD = with_tower_on_tape(std::move(x_TD), spec().sound.has_value());
    if (s.pictures) give_pictures(s, x_TD);
    return x_TD;
  }
  if (seeing().vision.words > 0 && !in.media.empty()) x_TD = with_marks(std::move(x_TD), in, s);
  const std::vector<Wanted> all = in.media.empty() ? std::vector<Wanted>() : wanted_media(in, s, seeing());
  std::map<Group, std::vector<const Wanted*>> groups;
  for (const Wanted& w : all) groups[{is_heard(*w.content), w.beside_pictures, w.adapter}].push_back(&w);
  for (const bool heard : {false, true})
    if (const auto first = groups.lower_bound(Group{.heard = heard});
        first == groups.end() || first->first.heard != heard)
      x_TD = with_tower_on_tape(std::move(x_TD), heard);
  if (all.empty()) {
    give_layers(in.id_T, x_TD, s);
    return spread(x_TD, s);
  }
  std::vector<int64_t> target, late_target;
  std::vector<at::Tensor> rows;
  std::vector<std::vector<at::Tensor>> late(seeing().vision.deep_layers.size());
  for (const auto& [which, group] : groups) {
    Contents contents;
    std::vector<int64_t> source;
    int64_t first = 0;
    for (const Wanted* w : group) {
      contents.push_back(w->content);
      for (const int64_t k : w->source) source.push_back(first + k);
      target.insert(target.end(), w->target.begin(), w->target.end());
      if (!which.heard) late_target.insert(late_target.end(), w->target.begin(), w->target.end());
      first += tokens_for(*w->content, seeing());
    }
    const Sight sight = features(contents, which, s);
    const at::Tensor picked = indices(source, sight.row_MD.device());
    const auto pick = [&](const at::Tensor& t) {
      return at::index_select(t, 0, picked).to(x_TD.device(), x_TD.scalar_type());
    };
    rows.push_back(pick(sight.row_MD));
    for (size_t d = 0; d < sight.late_MD.size(); ++d) late[d].push_back(pick(sight.late_MD[d]));
  }
  const at::Tensor target_R = indices(target, x_TD.device());
  if (!late_target.empty() && !late.empty()) {
    *in.late = {.row_R = indices(late_target, x_TD.device()), .of_layer_RD = {}};
    for (const auto& each : late) in.late->of_layer_RD.push_back(joined(each));
  }
  x_TD = with_rows(x_TD, target_R, joined(rows));
  if (const auto& given = spec().layer_inputs; given && given->media_word >= 0)
    give_layers(at::index_fill(in.id_T, 0, target_R, given->media_word), x_TD, s, target_R);
  else
    give_layers(in.id_T, x_TD, s);
  return spread(x_TD, s);
}

at::Tensor SeeingDecoder::behind_layer(int64_t i, const Inputs& in, at::Tensor x_TD) const {
  if (!in.late || i >= std::ssize(in.late->of_layer_RD)) return x_TD;
  const at::Tensor& added_RD = in.late->of_layer_RD[static_cast<size_t>(i)];
  return at::index_add(x_TD, 0, in.late->row_R.to(x_TD.device()), added_RD.to(x_TD.device()));
}

}  // namespace apus
