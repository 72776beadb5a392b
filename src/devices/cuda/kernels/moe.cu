// SPDX-License-Identifier: Apache-2.0
// Each token's sum over its pairs with experts, whose rows lie in the order of the experts: a block a token.

// place [T, k]: where a pair's row is; weight [T, k] f32, null: ones. `size` is a multiple of a pack.
template <class T>
__global__ void sum_pairs(const T* rows, const long long* place, const float* weight, T* y, int k, int size) {
  constexpr int n = Pack<T>::size;
  const long long token = blockIdx.x;
  for (int i = threadIdx.x * n; i < size; i += blockDim.x * n) {
    Pack<T> sum;
#pragma unroll
    for (int j = 0; j < n; ++j) sum.at[j] = 0;
    for (int p = 0; p < k; ++p) {
      const float w = weight ? weight[token * k + p] : 1.f;
      Pack<T> row;
      row.read(rows + place[token * k + p] * size + i);
#pragma unroll
      for (int j = 0; j < n; ++j) sum.at[j] += w * row.at[j];
    }
    sum.write(y + token * size + i);
  }
}
