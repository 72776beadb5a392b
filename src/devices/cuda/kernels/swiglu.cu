// SPDX-License-Identifier: Apache-2.0
// silu(gate) * up of rows of `size` numbers, a multiple of a pack, which may lie apart.

template <class T>
__global__ void forward(const T* gate, const T* up, T* y, long long gate_stride, long long up_stride, int size) {
  constexpr int n = Pack<T>::size;
  const long long row = blockIdx.y;
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * n;
  if (i >= size) return;
  Pack<T> g, u;
  g.read(gate + row * gate_stride + i), u.read(up + row * up_stride + i);
#pragma unroll
  for (int j = 0; j < n; ++j) g.at[j] = rounded<T>(g.at[j] / (1 + __expf(-g.at[j]))) * u.at[j];
  g.write(y + row * size + i);
}

template <class T>
__global__ void backward(const T* grad, const T* gate, const T* up, T* dgate, T* dup, long long grad_stride,
                         long long gate_stride, long long up_stride, long long out_stride, int size) {
  constexpr int n = Pack<T>::size;
  const long long row = blockIdx.y;
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * n;
  if (i >= size) return;
  Pack<T> d, g, u;
  d.read(grad + row * grad_stride + i), g.read(gate + row * gate_stride + i), u.read(up + row * up_stride + i);
#pragma unroll
  for (int j = 0; j < n; ++j) {
    const float s = 1 / (1 + __expf(-g.at[j])), in = g.at[j];
    g.at[j] = d.at[j] * u.at[j] * s * (1 + in * (1 - s));
    u.at[j] = d.at[j] * in * s;
  }
  g.write(dgate + row * out_stride + i), u.write(dup + row * out_stride + i);
}
