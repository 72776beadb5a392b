// SPDX-License-Identifier: Apache-2.0
// Attention over the paged cache: steps of few tokens a sequence by a kernel of ours, which asks the host nothing;
// prompts by flash attention over their gathered pages.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <climits>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "devices/cuda/flash.h"
#include "devices/cuda/ops.h"
#include "devices/cuda/typed.h"
#include "ops/coded_cache.h"
#include "ops/op.h"
#include "ops/ops.h"

namespace apus::cuda {

namespace {

using namespace ops::attention_signature;

constexpr int64_t kFew = 8;       // tokens of a sequence that are decoded rather than read
constexpr int64_t kFewest = 64;   // keys that are worth a block of their own
constexpr int64_t kBlocks = 528;  // that keep a large GPU busy
constexpr int64_t kMostSplits = 64;
constexpr int64_t kKeysOfMatrix = 16;  // that lie in one block

// As kernels/paged_attention.cu has them.
struct Cache {
  const void *cu_q, *cu_k, *table;
  int table_width, block, kv_heads, heads, k_size, v_size;
  long long k_row, v_row;
  int k_head, v_head;
};
struct Rule {
  float scale, softcap;
  int window;
};

// How the lanes of a warp share a key, and the rows of a block.
struct Shape {
  int64_t lanes, packs, rows;
  auto operator<=>(const Shape&) const = default;
};
// No lanes: heads are too large.
Shape shape_for(int64_t head_packs, int64_t rows) {
  Shape s{.lanes = 4, .packs = 1, .rows = 1};
  while (s.lanes < 32 && s.lanes < head_packs) s.lanes *= 2;
  s.packs = (head_packs + s.lanes - 1) / s.lanes;
  if (s.packs > 3) return {.lanes = 0, .packs = 0, .rows = 0};
  const int64_t most = s.packs == 1 ? 8 : s.packs == 2 ? 4 : 2;  // registers
  while (s.rows < rows && s.rows < most) s.rows *= 2;
  return s;
}

// As the kernels count them: plain, whole numbers, E4M3.
int codes_in(const at::Tensor& cache) { return !ops::is_coded(cache) ? 0 : cache.scalar_type() == at::kChar ? 1 : 2; }

const TypedKernel& attend_kernel(int codes, const Shape& shape) {
  static std::mutex mutex;
  static std::map<std::pair<int, Shape>, std::unique_ptr<TypedKernel>> kernels;
  const std::lock_guard lock(mutex);
  auto& kernel = kernels[{codes, shape}];
  if (!kernel)
    kernel = std::make_unique<TypedKernel>("paged_attention", "attend",
                                           str(", ", codes, ", ", shape.lanes, ", ", shape.packs, ", ", shape.rows));
  return *kernel;
}

// Null: heads of another form than the kernel by matrices is for.
const TypedKernel* matrix_kernel(int codes, int64_t size) {
  static const TypedKernel all[3][2] = {
      {{"paged_attention", "attend_in_matrices", ", 0, 64"}, {"paged_attention", "attend_in_matrices", ", 0, 128"}},
      {{"paged_attention", "attend_in_matrices", ", 1, 64"}, {"paged_attention", "attend_in_matrices", ", 1, 128"}},
      {{"paged_attention", "attend_in_matrices", ", 2, 64"}, {"paged_attention", "attend_in_matrices", ", 2, 128"}}};
  return size == 64 ? &all[codes][0] : size == 128 ? &all[codes][1] : nullptr;
}

struct Call {
  const at::Tensor &q, &k_cache, &v_cache, &cu_q, &cu_k, &table;
  int64_t max_q, max_k;
  double scale;
  int64_t window;
  double softcap;
  const OptionalTensor& sinks;

  int64_t sequences() const { return cu_q.numel() - 1; }
  int64_t heads() const { return q.size(1); }
  int64_t kv_heads() const { return k_cache.size(2); }
  int64_t k_size() const { return ops::head_size(k_cache); }
  int64_t v_size() const { return ops::head_size(v_cache); }
  int64_t head_packs() const { return std::max(k_size(), v_size()) / pack_of(q); }
};

// Rows and heads of a cache at multiples of sixteen bytes, of codes at such of four, block behind block.
bool laid_out(const at::Tensor& cache, at::ScalarType type) {
  if (ops::is_coded(cache))
    return cache.stride(2) % 4 == 0 && ops::head_size(cache) % (16 / c10::elementSize(type)) == 0 &&
           cache.stride(3) == 1 && cache.stride(0) == cache.size(1) * cache.stride(1);
  return cache.scalar_type() == type && in_packs(cache) && cache.stride(0) == cache.size(1) * cache.stride(1);
}

bool takes(const Call& c) {
  const auto type = c.q.scalar_type();
  return is_narrow_or_float(type) && c.q.numel() > 0 && in_packs(c.q) && laid_out(c.k_cache, type) &&
         laid_out(c.v_cache, type) && c.table.scalar_type() == at::kInt && c.cu_q.scalar_type() == at::kInt &&
         c.table.stride(1) == 1 && c.sequences() <= 65535 && shape_for(c.head_packs(), 1).lanes > 0;
}

// Of sequences with at most this many queries; the rows of others are left as they are.
void decode(const Call& c, int64_t most_queries, const at::Tensor& out) {
  static const TypedKernel join("paged_attention", "join");
  const auto type = c.q.scalar_type();
  const int64_t rows = std::min(c.max_q, most_queries) * (c.heads() / c.kv_heads());
  const int codes = codes_in(c.k_cache);
  const bool by_matrices = type != at::kFloat && c.k_size() == c.v_size() && matrix_kernel(codes, c.k_size()) &&
                           c.k_cache.size(1) % kKeysOfMatrix == 0;
  const Shape shape = by_matrices ? Shape{.lanes = 32, .packs = 1, .rows = 16} : shape_for(c.head_packs(), rows);
  const TypedKernel& attend = by_matrices ? *matrix_kernel(codes, c.k_size()) : attend_kernel(codes, shape);
  const int64_t row_groups = (rows + shape.rows - 1) / shape.rows, blocks = c.sequences() * c.kv_heads() * row_groups;
  const int64_t splits =
      std::clamp<int64_t>(kBlocks / blocks, 1, std::min(kMostSplits, (c.max_k + kFewest - 1) / kFewest));
  const at::Tensor sinks = c.sinks.has_value() ? c.sinks->to(at::kFloat).contiguous() : at::Tensor();
  const at::TensorOptions wide = c.q.options().dtype(at::kFloat);
  const int64_t places = c.q.size(0) * c.heads();
  const at::Tensor part = splits > 1 ? at::empty({places, splits, c.v_size()}, wide) : at::Tensor(),
                   sums = splits > 1 ? at::empty({places, splits, 2}, wide) : at::Tensor();
  const auto n = [](int64_t x) { return static_cast<int>(x); };
  const Cache cache{c.cu_q.data_ptr(),     c.cu_k.data_ptr(),   c.table.data_ptr(),  n(c.table.stride(0)),
                    n(c.k_cache.size(1)),  n(c.kv_heads()),     n(c.heads()),        n(c.k_size()),
                    n(c.v_size()),         c.k_cache.stride(1), c.v_cache.stride(1), n(c.k_cache.stride(2)),
                    n(c.v_cache.stride(2))};
  const Rule rule{static_cast<float>(c.scale), static_cast<float>(c.softcap), n(c.window)};
  attend.of(type)(Extent{splits, c.kv_heads() * row_groups, c.sequences()}, Extent{128}, address(c.q),
                  address(c.k_cache), address(c.v_cache), cache, rule, static_cast<long long>(c.q.stride(0)),
                  n(c.q.stride(1)), address(part), address(sums), address(out), address(sinks), n(row_groups),
                  n(most_queries));
  if (splits > 1)
    join.of(type)(Extent{places}, Extent{128}, address(part), address(sums), address(out), address(sinks), cache,
                  n(splits));
}

// The sequences of a step that read many tokens: told once a step, as every layer asks.
struct Readers {
  at::Tensor cu_q_of, cu_k_of;  // kept alive, so that no other tensor can appear at their address
  Runs runs;
  at::Tensor row;    // of the step's queries; undefined: all of them
  at::Tensor place;  // of their keys in the cache, one sequence behind the other
};

const Readers& readers(const Call& c) {
  thread_local Readers last;
  if (last.cu_q_of.is_same(c.cu_q) && last.cu_k_of.is_same(c.cu_k)) return last;
  const at::Tensor q = c.cu_q.to(at::kCPU), k = c.cu_k.to(at::kCPU);
  const int* const at_q = q.data_ptr<int>();
  const int* const at_k = k.data_ptr<int>();
  Readers made{.cu_q_of = c.cu_q, .cu_k_of = c.cu_k, .runs = {}, .row = {}, .place = {}};
  std::vector<int> cu_q{0}, cu_k{0};
  std::vector<int64_t> rows, entry, within;  // of the table, and of a block
  const int64_t block = c.k_cache.size(1);
  for (int64_t s = 0; s < c.sequences(); ++s) {
    const int queries = at_q[s + 1] - at_q[s], keys = at_k[s + 1] - at_k[s];
    if (queries <= kFew) continue;
    cu_q.push_back(cu_q.back() + queries), cu_k.push_back(cu_k.back() + keys);
    for (int i = at_q[s]; i < at_q[s + 1]; ++i) rows.push_back(i);
    for (int64_t i = 0; i < keys; ++i) entry.push_back(s * c.table.size(1) + i / block), within.push_back(i % block);
    made.runs.max_q = std::max<int64_t>(made.runs.max_q, queries);
    made.runs.max_k = std::max<int64_t>(made.runs.max_k, keys);
  }
  const at::Device device = c.q.device();
  made.runs.cu_q = at::tensor(cu_q, at::kInt).to(device), made.runs.cu_k = at::tensor(cu_k, at::kInt).to(device);
  made.place = c.table.reshape({-1}).index_select(0, at::tensor(entry, at::kLong).to(device)) * block +
               at::tensor(within, at::kLong).to(device);
  if (std::ssize(rows) < c.q.size(0)) made.row = at::tensor(rows, at::kLong).to(device);
  return last = std::move(made);
}

at::Tensor gathered(const at::Tensor& cache, const Readers& readers, at::ScalarType type) {
  const at::Tensor rows = cache.flatten(0, 1);
  if (!ops::is_coded(cache)) return at::index_select(rows, 0, readers.place);
  return ops::plain_blocks(rows.unsqueeze(1), readers.place, type).squeeze(1);
}

void read(const Call& c, const at::Tensor& out) {
  const Readers& many = readers(c);
  if (many.place.size(0) == 0) return;
  const at::Tensor q = many.row.defined() ? at::index_select(c.q, 0, many.row) : c.q;
  const at::Tensor y = std::get<0>(flash_forward(q, gathered(c.k_cache, many, q.scalar_type()),
                                                 gathered(c.v_cache, many, q.scalar_type()), many.runs,
                                                 {c.scale, /*causal=*/true, c.window}));
  if (many.row.defined())
    out.index_copy_(0, many.row, y);
  else
    out.copy_(y);
}

at::Tensor paged(const at::Tensor& q_in, const at::Tensor& k_cache, const at::Tensor& v_cache, const at::Tensor& cu_q,
                 const at::Tensor& cu_k, const at::Tensor& table, int64_t max_q, int64_t max_k, double scale,
                 bool causal, int64_t window, double softcap, const OptionalTensor& sinks) {
  const at::Tensor q = q_in.stride(2) == 1 ? q_in : q_in.contiguous();
  const Call c{q, k_cache, v_cache, cu_q, cu_k, table, max_q, max_k, scale, window, softcap, sinks};
  const bool flash =
      has_flash() && flash_takes(q, c.v_size(), causal, window, softcap, sinks) && c.k_size() == c.v_size();
  constexpr int64_t kMostOwn = 64;  // tokens of a sequence up to which the kernel is quicker than the reference
  if (!causal || window < 0 || !takes(c) || (max_q > kMostOwn && !flash)) {
    static const auto reference = ops::handle<Paged>("apus::paged_attention");
    return ops::call_reference(reference, q_in, k_cache, v_cache, cu_q, cu_k, table, max_q, max_k, scale, causal,
                               window, softcap, sinks);
  }
  at::Tensor out = at::empty({q.size(0), q.size(1), c.v_size()}, q.options());
  const bool reads = max_q > kFew && flash;
  if (!reads || c.sequences() > 1) decode(c, reads ? kFew : INT_MAX, out);
  if (reads) read(c, out);
  return out;
}

}  // namespace

std::vector<OwnOp> paged_attention_ops() { return {own<paged>("paged_attention", kOwnKernel)}; }

}  // namespace apus::cuda
