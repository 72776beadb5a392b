// SPDX-License-Identifier: Apache-2.0
#include "dist/collective.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"

namespace apus::collective {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Map = std::function<at::Tensor(const at::Tensor&)>;

struct Adjoint : torch::CustomClassHolder {
  explicit Adjoint(Map map) : map(std::move(map)) {}
  Map map;
};

// The way there does not stay on the tape: it may hold the result.
struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Map& map,
                            const c10::intrusive_ptr<Adjoint>& adjoint) {
    ctx->saved_data["adjoint"] = c10::IValue::make_capsule(adjoint);
    return map(x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto adjoint = c10::static_intrusive_pointer_cast<Adjoint>(ctx->saved_data["adjoint"].toCapsule());
    return {adjoint->map(grads[0]), at::Tensor(), at::Tensor()};
  }
};

at::Tensor applied(const at::Tensor& x, const Map& map, Map adjoint) {
  return Linear::apply(x, map, c10::make_intrusive<Adjoint>(std::move(adjoint)));
}

std::vector<int64_t> with_rows(const at::Tensor& like, int64_t rows) {
  std::vector<int64_t> shape = like.sizes().vec();
  shape[0] = rows;
  return shape;
}

int64_t total(const Rows& rows) {
  int64_t all = 0;
  for (const int64_t n : rows) all += n;
  return all;
}

void check(const char* name, const at::Tensor& x, Comm& ranks, const Rows& rows, int64_t here) {
  require(x.dim() > 0 && std::ssize(rows) == ranks.size() && x.size(0) == here, Fault::Bug, name, " among ",
          ranks.size(), " ranks with ", rows.size(), " counts, of ", x.dim() > 0 ? x.size(0) : 0, " rows instead of ",
          here);
}

std::vector<at::Tensor> split(const at::Tensor& x, const Rows& rows) {
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (const int64_t n : rows) parts.push_back(x.narrow(0, begin, n)), begin += n;
  return parts;
}

at::Tensor sum_of(const at::Tensor& x, Comm& ranks) {
  const at::Tensor y = x.clone(at::MemoryFormat::Contiguous);
  ranks.all_reduce(y)->wait();
  return y;
}

at::Tensor exchanged(const at::Tensor& x, Comm& ranks, const Rows& send, const Rows& receive) {
  const at::Tensor y = at::empty(with_rows(x, total(receive)), x.options());
  ranks.all_to_all(split(y, receive), split(x.contiguous(), send))->wait();
  return y;
}

at::Tensor rows_of_all(const at::Tensor& x, Comm& ranks, const Rows& rows) {
  const at::Tensor y = at::empty(with_rows(x, total(rows)), x.options());
  ranks.all_gather_uneven(split(y, rows), x.contiguous())->wait();
  return y;
}

// Uneven rows travel as they are, and each rank sums those that come to it in the order of the ranks; numbers below f32
// in f32, rounded once.
at::Tensor own_sums(const at::Tensor& x, Comm& ranks, const Rows& rows) {
  const auto me = static_cast<size_t>(ranks.rank());
  if (std::all_of(rows.begin(), rows.end(), [&](int64_t n) { return n == rows[0]; })) {
    const at::Tensor y = at::empty(with_rows(x, rows[0]), x.options());
    ranks.reduce_scatter(y, x.contiguous())->wait();
    return y;
  }
  const Rows mine(rows.size(), rows[me]);
  const at::Tensor all = exchanged(x, ranks, rows, mine);
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor sum = at::zeros(with_rows(x, rows[me]), x.options().dtype(wide));
  for (const at::Tensor& part : split(all, mine)) sum.add_(part);
  return sum.to(x.scalar_type());
}

Map given(const at::Tensor& result) {
  return [result](const at::Tensor&) { return result; };
}

}  // namespace

at::Tensor all_reduce(const at::Tensor& x, Comm& ranks, const at::Tensor& known) {
  if (ranks.size() == 1) return x;
  const Map sum = [&ranks](const at::Tensor& t) { return sum_of(t, ranks); };
  return applied(x, known.defined() ? given(known) : sum, sum);
}

at::Tensor all_gather(const at::Tensor& x, Comm& ranks, const Rows& rows) {
  check("all_gather", x, ranks, rows, rows.at(static_cast<size_t>(ranks.rank())));
  if (ranks.size() == 1) return x;
  return applied(
      x, [&ranks, rows](const at::Tensor& t) { return rows_of_all(t, ranks, rows); },
      [&ranks, rows](const at::Tensor& g) { return own_sums(g, ranks, rows); });
}

at::Tensor reduce_scatter(const at::Tensor& x, Comm& ranks, const Rows& rows, const at::Tensor& known) {
  check("reduce_scatter", x, ranks, rows, total(rows));
  if (ranks.size() == 1) return x;
  const Map sum = [&ranks, rows](const at::Tensor& t) { return own_sums(t, ranks, rows); };
  return applied(x, known.defined() ? given(known) : sum,
                 [&ranks, rows](const at::Tensor& g) { return rows_of_all(g, ranks, rows); });
}

at::Tensor all_to_all(const at::Tensor& x, Comm& ranks, const Rows& send, const Rows& receive) {
  check("all_to_all", x, ranks, send, total(send));
  require(receive.size() == send.size(), Fault::Bug, "all_to_all with ", send.size(), " and ", receive.size(),
          " counts");
  if (ranks.size() == 1) return x;
  return applied(
      x, [&ranks, send, receive](const at::Tensor& t) { return exchanged(t, ranks, send, receive); },
      [&ranks, send, receive](const at::Tensor& g) { return exchanged(g, ranks, receive, send); });
}

at::Tensor broadcast(const at::Tensor& x, Comm& ranks, int root) {
  if (ranks.size() == 1) return x;
  return applied(
      x,
      [&ranks, root](const at::Tensor& t) {
        const at::Tensor y = t.clone(at::MemoryFormat::Contiguous);
        ranks.broadcast(y, root)->wait();
        return y;
      },
      [&ranks, root](const at::Tensor& g) {
        const at::Tensor sum = sum_of(g, ranks);
        return ranks.rank() == root ? sum : at::zeros_like(sum);
      });
}

}  // namespace apus::collective
