// SPDX-License-Identifier: Apache-2.0
// Cosine and sine of the angles by which each token turns. In double, as on the host, so that both round to the same.
struct Frequencies {
  float inverse[256];
  unsigned char axis[256];  // which of three positions each follows
};

__global__ void table(const long long* position, float* cos_TR, float* sin_TR, Frequencies frequency, long long tokens,
                      int r, double scale, double sign) {
  const long long n = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x, token = n / r;
  const int i = n % r;
  if (token >= tokens) return;
  const float angle = static_cast<float>(position[frequency.axis[i] * tokens + token]) * frequency.inverse[i];
  cos_TR[n] = static_cast<float>(cos(static_cast<double>(angle)) * scale);
  sin_TR[n] = static_cast<float>(sin(sign * static_cast<double>(angle)) * scale);
}
