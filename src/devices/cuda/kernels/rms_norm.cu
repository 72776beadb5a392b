// SPDX-License-Identifier: Apache-2.0
// RMS norm of rows of `size` numbers, a multiple of a pack. blockDim.x threads a row, blockDim.y rows a block.

// y = round(x / rms) * weight. With delta: x + delta is written to `sum` and normed.
template <class T>
__global__ void forward(const T* x, const T* delta, const T* weight, T* sum, T* y, long long rows, int size, float eps) {
  const long long row = static_cast<long long>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  constexpr int n = Pack<T>::size;
  const long long first = row * size;
  const T* const from = delta ? sum : x;
  float squares = 0;
  for (int i = threadIdx.x * n; i < size; i += blockDim.x * n) {
    Pack<T> a;
    a.read(x + first + i);
    if (delta) {
      Pack<T> b;
      b.read(delta + first + i);
#pragma unroll
      for (int j = 0; j < n; ++j) a.at[j] = rounded<T>(a.at[j] + b.at[j]);
      a.write(sum + first + i);
    }
#pragma unroll
    for (int j = 0; j < n; ++j) squares += a.at[j] * a.at[j];
  }
  const float inverse = rsqrtf(sum_of_row(squares) / size + eps);
  // Each thread reads again what it wrote itself.
  for (int i = threadIdx.x * n; i < size; i += blockDim.x * n) {
    Pack<T> a, w;
    a.read(from + first + i), w.read(weight + i);
#pragma unroll
    for (int j = 0; j < n; ++j) a.at[j] = rounded<T>(a.at[j] * inverse) * w.at[j];
    a.write(y + first + i);
  }
}

// dx = inverse * (g - normal * mean(g * normal)), g = grad * weight, normal = x * inverse; plus grad_sum, where it is there.
// inverses: receives each row's 1 / rms, for the gradient of the weight; null: nobody asks.
template <class T>
__global__ void backward(const T* grad, const T* x, const T* weight, const T* grad_sum, T* dx, float* inverses,
                         long long rows, int size, float eps) {
  const long long row = static_cast<long long>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  constexpr int n = Pack<T>::size;
  const long long first = row * size;
  float squares = 0, product = 0;
  for (int i = threadIdx.x * n; i < size; i += blockDim.x * n) {
    Pack<T> a, g, w;
    a.read(x + first + i), g.read(grad + first + i), w.read(weight + i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      squares += a.at[j] * a.at[j];
      product += g.at[j] * w.at[j] * a.at[j];
    }
  }
  const float inverse = rsqrtf(sum_of_row(squares) / size + eps);
  const float mean = sum_of_row(product) * inverse / size;
  if (inverses && threadIdx.x == 0) inverses[row] = inverse;
  for (int i = threadIdx.x * n; i < size; i += blockDim.x * n) {
    Pack<T> a, g, w;
    a.read(x + first + i), g.read(grad + first + i), w.read(weight + i);
#pragma unroll
    for (int j = 0; j < n; ++j) a.at[j] = inverse * (g.at[j] * w.at[j] - a.at[j] * inverse * mean);
    if (grad_sum) {
      g.read(grad_sum + first + i);
#pragma unroll
      for (int j = 0; j < n; ++j) a.at[j] += g.at[j];
    }
    a.write(dx + first + i);
  }
}

// The weight's gradient, of the rows of one of gridDim.y parts: parts [gridDim.y, size].
template <class T>
__global__ void weight_gradient(const T* grad, const T* x, const float* inverses, float* parts, long long rows,
                                int size) {
  constexpr int n = Pack<T>::size;
  const int column = (blockIdx.x * blockDim.x + threadIdx.x) * n;
  if (column >= size) return;
  float sums[n] = {};
  for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
    Pack<T> a, g;
    a.read(x + row * size + column), g.read(grad + row * size + column);
    const float inverse = inverses[row];
#pragma unroll
    for (int j = 0; j < n; ++j) sums[j] += g.at[j] * a.at[j] * inverse;
  }
#pragma unroll
  for (int j = 0; j < n; ++j) parts[static_cast<long long>(blockIdx.y) * size + column + j] = sums[j];
}
