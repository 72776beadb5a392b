// SPDX-License-Identifier: Apache-2.0
#include "engine/cache_size.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "device/device.h"
#include "dist/mesh.h"

namespace apus {

namespace {
// On the host memory is everyone's: the cache is no larger unasked.
constexpr int64_t kHostCache = int64_t{2} << 30;

// The shape, with the key-value heads of this rank alone: Attention cuts them so.
ModelShape held_shape(const Model& model) {
  ModelShape shape = model.shape();
  const MeshView* const mesh = model.mesh();
  if (!mesh || mesh->size(Axis::Tp) == 1 || shape.latent > 0) return shape;
  const Cut heads{.axis = Axis::Tp, .dim = 0, .groups = shape.kv_heads, .shared = true};
  shape.kv_heads = part_of(shape.kv_heads, heads, mesh->rank(Axis::Tp), mesh->size(Axis::Tp)).size;
  return shape;
}

// The devices that hold caches, each with its layers.
std::vector<std::pair<at::Device, std::vector<int64_t>>> cache_devices(const Model& model, at::Device only) {
  std::vector<std::pair<at::Device, std::vector<int64_t>>> out;
  for (int64_t i = 0; i < model.shape().layers; ++i) {
    const at::Device device = model.devices() ? model.devices()->layer[static_cast<size_t>(i)] : only;
    auto known = std::find_if(out.begin(), out.end(), [&](const auto& entry) { return entry.first == device; });
    if (known == out.end()) known = out.insert(out.end(), {device, {}});
    known->second.push_back(i);
  }
  return out;
}

// What these layers keep of a picture (ModelShape::picture_rows).
int64_t bytes_per_picture(const ModelShape& shape, const std::vector<int64_t>& layers, int64_t element) {
  const auto reads = [&](int64_t layer) { return shape.reads_pictures(layer); };
  return 2 * std::count_if(layers.begin(), layers.end(), reads) * shape.picture_rows * shape.kv_heads * shape.head_dim *
         element;
}

// How many sequences' states (or pictures) a device has memory for: as many as are asked for, but unasked no more than
// half of what there is for caches, and on the host no more than that may take.
int64_t seats_for(const EngineSpec& spec, int64_t bytes_per_seat, const Memory& memory, bool host, int64_t limit) {
  if (spec.cache_bytes > 0) return spec.max_sequences;
  const auto share = static_cast<int64_t>(spec.memory_fraction * static_cast<double>(memory.total));
  const int64_t bytes = std::min({share - (memory.total - memory.free), limit, host ? 2 * kHostCache : limit});
  return std::clamp<int64_t>(bytes / 2 / bytes_per_seat, 1, spec.max_sequences);
}

}  // namespace

CacheSize cache_size(const EngineSpec& spec, int64_t positions, int64_t bytes_per_block, int64_t total, int64_t free,
                     bool host, int64_t limit) {
  const int64_t wanted = spec.max_model_len > 0 ? spec.max_model_len : positions;
  const auto blocks_for = [&](int64_t tokens) { return (tokens + spec.block_size - 1) / spec.block_size; };
  int64_t bytes = spec.cache_bytes;
  if (bytes <= 0) {
    bytes = static_cast<int64_t>(spec.memory_fraction * static_cast<double>(total)) - (total - free);
    bytes = std::min(bytes, limit);
    if (host) bytes = std::min(bytes, std::max(kHostCache, blocks_for(wanted) * bytes_per_block));
  }
  CacheSize size;
  size.blocks = std::min(bytes / bytes_per_block, spec.max_sequences * blocks_for(wanted));
  size.blocks = std::min<int64_t>(size.blocks, INT32_MAX / spec.block_size);
  size.max_model_len = std::min(wanted, size.blocks * spec.block_size);
  return size;
}

EngineSpec with_block_size(EngineSpec spec, const Model& model, at::Device only) {
  if (spec.block_size != 0) return spec;
  for (const auto& [device, layers] : cache_devices(model, only))
    spec.block_size = std::max(spec.block_size, kind_of(device).cache_block());
  return spec;
}

int64_t alike_up_to(const Model& model, at::Device device, int64_t longest) {
  const auto tables = [&](int64_t length) {
    Step step = packed_step({2}, device);
    step.length_k = {static_cast<int32_t>(length)};
    model.begin(step);
    std::vector<at::Tensor> all;
    for (const Turn& turn : step.turns) all.push_back(turn.cos.to(at::kCPU));
    return all;
  };
  const std::vector<at::Tensor> shortest = tables(1);
  const auto alike_at = [&](int64_t length) {
    const std::vector<at::Tensor> there = tables(length);
    return std::equal(there.begin(), there.end(), shortest.begin(),
                      [](const at::Tensor& a, const at::Tensor& b) { return a.equal(b); });
  };
  int64_t alike = 1, other = longest;  // halved until they are neighbours
  if (alike_at(longest)) return longest;
  while (other - alike > 1) {
    const int64_t middle = alike + (other - alike) / 2;
    (alike_at(middle) ? alike : other) = middle;
  }
  return alike;
}

namespace {
std::optional<at::ScalarType> cache_codes(const EngineSpec& spec) {
  if (spec.cache_type == "auto") return std::nullopt;
  return spec.cache_type == "int8" ? at::kChar : at::kByte;
}
}  // namespace

KvCache::Spec held_cache(const Model& model, const EngineSpec& spec, const CacheSize& size) {
  KvCache::Spec cache = cache_spec(held_shape(model), size.blocks, spec.block_size);
  cache.seats = size.seats, cache.codes = cache_codes(spec);
  require(!cache.codes || model.media_at_once() != MediaAtOnce::All, Fault::Usage, "--kv_cache_dtype ", spec.cache_type,
          " is not for this model, whose pictures see those behind them: leave it out");
  require(!cache.codes || !model.shape().pooled, Fault::Usage, "--kv_cache_dtype ", spec.cache_type,
          " is not for models whose cache holds pooled keys beside those of the tokens: leave it out");
  require(!cache.codes || model.shape().position_numbers == 0, Fault::Usage, "--kv_cache_dtype ", spec.cache_type,
          " is not for models whose keys say their positions (alibi): leave it out");
  return cache;
}

CacheSize cache_size_of(const Model& model, const at::TensorOptions& options, const EngineSpec& spec, int64_t beside) {
  const ModelShape shape = held_shape(model);
  CacheSize least{INT64_MAX, 0};
  int64_t seats = spec.max_sequences, pictures = spec.max_sequences;
  const auto element = static_cast<int64_t>(c10::elementSize(c10::typeMetaToScalarType(options.dtype())));
  for (const auto& [device, layers] : cache_devices(model, options.device())) {
    EngineSpec own = spec;
    KvCache::Spec held = cache_spec(shape, layers, 0, spec.block_size);
    held.codes = cache_codes(spec);
    own.cache_bytes = spec.cache_bytes * std::ssize(layers) / shape.layers;
    // A device may hold layers with states alone.
    int64_t bytes = std::max<int64_t>(1, KvCache::bytes_per_block(held, element));
    const int64_t seat = KvCache::bytes_per_seat(held, element);
    if (device == options.device()) bytes += beside;
    const auto found = spec.cache_limits.find(device_name(device));
    int64_t limit = found == spec.cache_limits.end() ? INT64_MAX : found->second;
    Memory memory = kind_of(device).memory(device.has_index() ? device.index() : 0);
    if (seat > 0) {
      own.max_sequences = seats_for(spec, seat, memory, device.is_cpu(), limit);
      seats = std::min(seats, own.max_sequences);
      if (spec.cache_bytes <= 0) memory.free -= own.max_sequences * seat;
      if (limit != INT64_MAX) limit -= own.max_sequences * seat;
    }
    if (const int64_t picture = bytes_per_picture(shape, layers, element); picture > 0) {
      const int64_t kept = seats_for(spec, picture, memory, device.is_cpu(), limit);
      pictures = std::min(pictures, kept);
      if (spec.cache_bytes <= 0) memory.free -= kept * picture;
      if (limit != INT64_MAX) limit -= kept * picture;
    }
    const CacheSize size =
        cache_size(own, shape.max_positions, bytes, memory.total, memory.free, device.is_cpu(), limit);
    require(size.blocks > 0 && size.max_model_len > 1, Fault::Device, "no memory for the cache of keys and values on ",
            device_name(device), ": ", memory.free >> 20, " MiB free of ", memory.total >> 20, " MiB, one block needs ",
            (bytes >> 10) + 1, " KiB; give more by --memory_utilization or --kv_cache_gb, or free memory");
    if (size.blocks < least.blocks) least = size;
  }
  least.seats = shape.keeps.empty() ? 0 : seats;
  least.pictures = shape.picture_rows > 0 ? pictures : 0;
  return least;
}

}  // namespace apus
