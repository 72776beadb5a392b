// SPDX-License-Identifier: Apache-2.0
// What a decoder sees with, as data: the tower that makes hidden states of images and videos, the tokens they stand in
// for, the positions of these. Beside a DecoderSpec; the modules (models/towers) and the plan's list of parameters are
// made from it. No tensor library.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "media/sizes.h"
#include "models/spec/disk_form.h"
#include "nn/norm_kind.h"

namespace apus {

// A module of a tower.
struct TowerPart {
  // Table: numbers that no adapter changes, of any shape (a convolution that reads each patch once, positions). Idle: a
  // table that is never trained, and mostly never used. Bare: a table under the part's own name, without `.weight`
  // behind it. Fixed: the same, never trained; of shape [1] it has no dimensions in the file.
  enum class Kind { Linear, Norm, Table, Idle, Bare, Fixed };
  Kind kind;
  std::string name;
  std::vector<int64_t> shape;  // of its weight; of a linear layer [out, in]
  bool bias = false;
  NormSpec norm = {};
};

// QuickGelu: x * sigmoid(1.702 x).
enum class TowerActivation { QuickGelu, Gelu, GeluTanh, Silu };

// How a vision tower's modules are called, below the tower's own name; blocks and mergers below theirs.
struct VisionNames {
  const char *patches = "patch_embed.proj", *table = "pos_embed", *blocks = "blocks";
  // Null: no row of its own stands before a picture's patches.
  const char* first = nullptr;
  // By how much that row's heads turn, learnt, and not trained further. Null: they do not turn.
  const char* first_angles = nullptr;
  // Of the norm of a patch's own numbers, which then stand pixel by pixel, each with its colours. Null: there is none.
  const char* norm_patches = nullptr;
  // Of norms before the first block and behind the last one. Null: there is none.
  const char *norm_in = nullptr, *norm_out = nullptr;
  const char *norm1 = "norm1", *norm2 = "norm2", *proj = "attn.proj";
  // Of queries and keys, over all heads. Null: they are not normalised.
  const char *q_norm = nullptr, *k_norm = nullptr;
  // Of what attention and feed-forward give, before it is added. Null: there are none.
  const char *after_attention = nullptr, *after_feed_forward = nullptr;
  // Vectors by which what attention and feed-forward give is multiplied. Null: there are none.
  const char *scale1 = nullptr, *scale2 = nullptr;
  // Null: there is none. It stands in the file, and nothing reads it.
  const char* idle_norm = nullptr;
  // One linear layer for queries, keys and values, or (null) one for each.
  const char* qkv = "attn.qkv";
  const char *q = "attn.q", *k = "attn.k", *v = "attn.v";
  // Null: the feed-forward has no gate.
  const char* gate = nullptr;
  const char *up = "mlp.fc1", *down = "mlp.fc2";
  // Null: there is none, and what comes before is what the merger gives. `merger_cells` is a linear layer that brings a
  // cell to the tower's width; `merger_matrix` stands for both layers, bare, its inputs as rows.
  const char *merger_norm = "ln_q", *merger_in = "mlp.0", *merger_out = "mlp.2";
  const char *merger_cells = nullptr, *merger_matrix = nullptr;
  // Null: cells are joined. Else a convolution of the tower makes `out` numbers of each, `merger_before` is a linear
  // layer with the merger's norm and gelu behind it, and what the merger gives has a gate.
  const char *merger_conv = nullptr, *merger_before = nullptr, *merger_gate = nullptr;
  // Two convolutions before the merger, each of which halves both sides and gives twice as many numbers. Null: there
  // are none. With merge 1.
  const char *narrow = nullptr, *narrower = nullptr;
  // Vectors of the tower: what is taken off a cell, and what it is then multiplied by. Null: there are none.
  const char *cells_minus = nullptr, *cells_times = nullptr;
  const char* deep_mergers = "deepstack_merger_list";
  // Of what makes one row of 2 x 2 patches among the blocks.
  const char *half_norm = "vit_merger.layer_norm1", *half_q = "vit_merger.self_attn.q_proj",
             *half_k = "vit_merger.self_attn.k_proj", *half_v = "vit_merger.self_attn.v_proj",
             *half_proj = "vit_merger.self_attn.out_proj", *half_cell_norm = "vit_merger.pre_norm",
             *half_in = "vit_merger.linear_1", *half_out = "vit_merger.linear_2";
};

// How the rows of merge x merge patches become one: one behind the other; the first numbers of all, then the second
// ones; their mean.
enum class CellForm { Joined, ByNumber, Mean };

// How a table of positions is spread over a picture: from the four entries around a patch, corners on corners; from
// four or sixteen of them, edges on edges (Smooth: from all that a patch covers where it covers more); the one entry
// that a patch's beginning lies in; from all that a patch covers, the nearer the more. Axes: not at all, there being
// one table for columns and one for lines.
enum class TableForm { Corners, Linear, Cubic, Smooth, Nearest, Covered, Axes };

// In place of a merger: `queries` rows that are learnt read the rows of each picture, whose places are sines. 0: none.
struct ResamplerForm {
  int64_t queries = 0, heads = 0;
};

// In place of a merger: two convolutions make a cell, behind a norm of its patches; a cell of the model's own ends each
// line, a linear layer brings cells to the decoder's width, two rows of the model's own stand around the picture, and a
// norm comes last. Below the merger's own name.
struct LinesForm {
  int64_t cell = 0;  // numbers between the convolutions and the linear layer; half as many between these; 0: none
  NormSpec norm = {NormKind::Rms, 1e-5};
  const char *before = "before_rms", *narrow = "proj.0", *wide = "proj.2", *newline = "image_newline", *linear = "mlp",
             *begin = "image_begin", *end = "image_end", *idle = "image_sep", *behind = "after_rms";
  int64_t rows(int64_t high, int64_t wide) const { return high * (wide + 1) + 2; }
};

// In place of a merger: a feed-forward with a norm behind it makes `cell` numbers of each cell, another of the cells of
// `time_merge` (2) frames (of an image's twice), and a linear layer and a norm the decoder's row. Below the merger's
// own name. cell 0: there is none.
struct PairsForm {
  int64_t cell = 0;
  NormSpec behind = {NormKind::Rms, 1e-5};
  const char *spatial = "spatial_linear", *temporal = "temporal_linear", *last = "mlp", *last_norm = "after_norm";
  const char *in = ".fc1", *out = ".fc2", *norm = ".ln";
};

// In place of a merger: a row that attention makes of some patches (MediaContent::pooled), asking by their mean; then a
// gated feed-forward. heads 0: there is none.
struct PoolerForm {
  int64_t width = 0, heads = 0, ffn = 0;
  bool bias = true, ffn_bias = false;
  // Whole names of attention and of the feed-forward.
  std::string attention = "", feed_forward = "";
  int64_t head_size() const { return width / heads; }
};

// A vision tower: patches as rows, attention within a frame or its windows, and a merger that makes one row of merge x
// merge patches.
struct VisionSpec {
  std::string name = "model.visual";
  // Of the merger, where it does not lie in the tower.
  std::string merger = "";
  // Of width 0: the model only hears.
  int64_t width = 0, layers = 0, heads = 0, ffn = 0;
  // Of keys and values; 0: as many as of queries.
  int64_t kv_heads = 0;
  // Behind them so many are in the file that nothing reads.
  int64_t unread_layers = 0;
  // The width of the rows that it gives: that of the decoder.
  int64_t out = 0;
  int64_t channels = 3, patch = 0, time_patch = 2, merge = 2;
  // The row before a picture's patches is a vector, and its position the first entry of the table, if there is one (or
  // the last one); else both are bare.
  bool first_in_table = false, first_ends_table = false;
  // Of Axes: a place's row for columns stands beside its row for lines, not in a table of its own.
  bool axes_side_by_side = false;
  // The table is bare, whether or not there is such a row.
  bool table_bare = false;
  bool patch_bias = false;
  // Patches come as rows of the tower's width, which another tower made.
  bool reads_rows = false;
  // The weight that reads patches is a matrix whose inputs stand pixel by pixel, each with its colours.
  bool patch_by_pixel = false;
  // The same weight is a matrix, whose inputs stand as in a convolution.
  bool patch_is_matrix = false;
  // Whether the weight that reads patches has a dimension for frames of their own.
  bool patch_has_time = true;
  // Above 0: pictures come as square tiles of so many pixels; 0: as patches, and have any size.
  int64_t tile = 0;
  // Queries and keys are turned by the patch's row and column.
  bool turned = true;
  double turn_base = 1e4;
  // Rows and columns take turns in the angles' speeds; else both have all of the same ones.
  bool turns_alternate = false;
  // Neighbours turn together, a pair by its column, the next one by its row.
  bool turns_neighbours = false;
  // Of neighbours: the first half of the pairs turns by its column, the second by its row, both counted from one. The
  // row before a picture's patches does not turn.
  bool turns_columns_first = false;
  // The first half of a head turns by columns and the second by lines, each as if it were a head.
  bool turns_halves = false;
  bool qkv_bias = true;
  // Of what follows attention, and of the feed-forward.
  bool block_bias = true;
  NormSpec norm = {NormKind::MeanAndBias, 1e-6};
  // Of queries and keys, where names say that they are normalised; of each head, or of all together.
  NormSpec qk_norm = {NormKind::Rms, 1e-6};
  bool qk_norm_of_heads = false;
  // Each head's values are normalised, without weights.
  bool value_norm = false;
  // What products of queries and keys are multiplied by; 0: 1 / sqrt(head size).
  double score_scale = 0;
  // Inputs and results of a block's linear layers are kept between numbers that the file has beside each of them.
  bool clipped = false;
  TowerActivation act = TowerActivation::QuickGelu;
  VisionNames names = {};
  // Learned positions, table_side x table_side, interpolated to each image's size (of Axes: so many columns and lines);
  // 0: there are none.
  int64_t table_side = 0;
  TableForm table_form = TableForm::Corners;
  // Its weight has a dimension for rows and one for columns.
  bool table_is_plane = false;
  // So many of its entries, which nothing reads, stand before the first.
  int64_t table_before = 0;
  // Of Nearest: a patch begins at so many times a patch's share of the side, as f32 holds it, not at its own share;
  // and patches stand in one line, whatever the picture's height.
  bool table_in_steps = false, table_of_strips = false;
  bool table_behind_norm = false;  // added behind the norm before the first block
  // Patches are normalised before cells of them are put together; and the norm, where it is not the tower's.
  bool merger_norm_first = true;
  std::optional<NormSpec> merger_norm = {};
  // Between the merger's two layers; 0: as wide as a cell.
  int64_t merger_inner = 0;
  bool merger_bias = true;
  ResamplerForm resampler = {};
  PoolerForm pooler = {};
  LinesForm lines = {};
  PairsForm pairs = {};
  // Frames of a video that become one behind the tower.
  int64_t time_merge = 1;
  // Of a patch what these layers give, side by side; empty: what the last one gives.
  std::vector<int64_t> taken_layers = {};
  // Not empty: what the merger gives, `merger_rows` numbers wide, goes through gelu and this layer, by its whole name.
  std::string merger_end = "";
  int64_t merger_rows = 0;
  double cell_scale = 1;  // of the mean of a cell's patches
  CellForm cells = CellForm::Joined;
  // The whole names of bare rows: what ends each line of a mosaic, and what stands between its two pictures. "": there
  // are none.
  std::string newline = "", separator = "";
  // The whole names of bare cells, which go through the merger as others do, and come behind all of them: what ends
  // each line of a mosaic, and what stands between its two pictures. "": there are none.
  std::string line_end = "", between = "";
  // Above 0: what the tower gives are shares of so many words of its own, the rows of the table `word_table`. The last
  // of them are no cell's: they stand for these tokens.
  int64_t words = 0;
  std::string word_table = "";
  std::vector<int64_t> mark_tokens = {};
  static constexpr int64_t kLowestMark = -305;  // of all families
  int64_t marks() const { return static_cast<int64_t>(mark_tokens.size()); }
  // Squares of so many patches become one, and rows of zeros fill up those at the picture's edges. With merge 1.
  int64_t join = 1;
  // The side of a window in merged cells, and the layers that look at whole frames all the same. 0: all do.
  int64_t window = 0;
  std::vector<int64_t> full_layers = {};
  // Behind this layer 2 x 2 patches become one row, whose attention and feed-forward are of these four; the merger
  // joins what is left of a cell. -1: no layer.
  int64_t halved_behind = -1;
  // Layers whose output is merged too, and added to the states behind the decoder's first layers.
  std::vector<int64_t> deep_layers = {};

  int64_t head_size() const { return width / heads; }
  // Numbers that the tower gives of a patch.
  int64_t taken_width() const { return width * std::max<int64_t>(1, std::ssize(taken_layers)); }
  int64_t kv_width() const { return kv_heads > 0 ? kv_heads * head_size() : width; }
  // Rows a side that the merger makes one of.
  int64_t merged_side() const { return (halved_behind < 0 ? merge : merge / 2) * join; }
  int64_t cell_width() const {
    if (names.narrow) return 4 * width;
    return cells == CellForm::Mean ? width : width * merged_side() * merged_side();
  }
  // Steps in time that are left of a grid's.
  int64_t steps_of(int64_t frames) const { return frames == 1 ? 1 : frames / time_merge; }
  // Rows that the merger makes of so many patches a side.
  int64_t rows_of_side(int64_t patches) const {
    return names.narrow ? halved_twice(patches) : (patches + join - 1) / join / merge;
  }
  bool bare_table() const { return table_bare || (names.first && !first_in_table); }
  int64_t patch_numbers() const { return channels * time_patch * patch * patch; }
  std::string merger_name() const { return merger.empty() ? name + ".merger" : merger; }
};

// Of a clipped layer "q_proj.linear" stand as "q_proj.input_min" and so on, in this order.
inline constexpr const char* kLimitNames[] = {"input_min", "input_max", "output_min", "output_max"};
inline std::string limit_name(const std::string& layer, const char* limit) {
  return layer.substr(0, layer.rfind('.') + 1) + limit;
}

// In the order of the tower's own modules.
std::vector<TowerPart> parts_of(const VisionSpec& spec);
struct SeeingSpec;
// Of all towers.
std::vector<TowerPart> parts_of(const SeeingSpec& spec);

// How positions go on over a video's steps in time.
enum class TimeRule {
  Steps,     // one by one
  Seconds,   // by the whole seconds between two of them (Qwen2.5-VL)
  Apart,     // every step stands for itself in the text, with its time before it (Qwen3-VL)
  Times,     // by their times, cut to whole positions (Qwen2.5-Omni)
  Exact,     // by their times: positions then are no whole numbers (Qwen3-Omni)
  Text,      // media count up as text does
  Numbered,  // so they do, and besides have a column, a line and the picture's number: four positions (Hunyuan-VL)
};

struct HearingSpec;   // models/spec/hearing_spec.h
struct PageSpec;      // models/spec/page_spec.h
struct CanvasSpec;    // models/spec/canvas_spec.h
struct MobileSpec;    // models/spec/mobile_spec.h
struct EmbedderForm;  // models/spec/embedder_form.h
struct MosaicForm;    // media/mosaic.h

// Of tokens: the files leave their numbers to the tokenizer. An item's first token is it then.
constexpr int64_t kTokenizersChoice = INT64_MIN;

struct SeeingSpec {
  VisionSpec vision;
  // Set: it reads pages by these towers, and `vision` says of them what is counted of every tower (vision_of).
  std::shared_ptr<const PageSpec> page = nullptr;
  // Set: it lays pictures on canvases and looks at them by this tower, and `vision` says of it what is counted of every
  // tower. One token stands for a picture; what the tower makes of it goes to layers that read nothing else.
  std::shared_ptr<const CanvasSpec> canvas = nullptr;
  // Set: it looks at whole pictures by this tower, and `vision` says of it what is counted of every tower.
  std::shared_ptr<const MobileSpec> mobile = nullptr;
  // Null: it does not hear.
  std::shared_ptr<const HearingSpec> hearing = nullptr;
  // Whose tables are the embedding of some tokens of the vocabulary, in the place of the text's own.
  std::vector<std::shared_ptr<const EmbedderForm>> own_words = {};
  // -1: the model takes none of the kind.
  int64_t image_token = -1, video_token = -1, sound_token = -1;
  // Before the tokens of a sound; before those of a video too whose own sound stands among them.
  int64_t sound_begin = -1;
  // A video and its sound take turns in chunks of so many seconds; 0: whichever comes first.
  double seconds_per_turn = 0;
  TimeRule time = TimeRule::Steps;
  double positions_per_second = 2;
  // Tokens of an image that stand together see each other, also those behind them; or only in layers with a window.
  bool sees_ahead = false, ahead_in_windows_only = false;
  // With sees_ahead: all tokens from the first to the end of the last medium do, the question's among them
  // (PreparedMedia::with_question).
  bool sees_question = false;
  // With sees_ahead: so do those of all media of a text, and these tokens, which begin, part and end them.
  std::vector<int64_t> marks_ahead = {};
  // Tokens that begin and end media: experts take them as the media's own (MixtureSpec::of_media).
  std::vector<int64_t> media_marks = {};
  // What towers make is added to the embedding of the tokens, and does not take its place.
  bool added = false;
  // Tokens behind the vocabulary, which stand in texts with media and never in answers; a table of their own, by its
  // whole name, is their embedding.
  struct MediaWords {
    std::string table;
    int64_t count = 0;
  };
  MediaWords media_words = {};
  // Tiles of an image are one of all of it and a grid of it once more. Null: each stands for itself.
  std::shared_ptr<const MosaicForm> mosaic = nullptr;
  // Beginnings of parameters' names by what they are for: what --freeze_llm, --freeze_vit and --freeze_aligner mean.
  std::vector<std::string> language, tower, aligner;
  // How files hold its tensors. The first is how new ones are written.
  std::vector<DiskForm> forms = {};
};

}  // namespace apus
