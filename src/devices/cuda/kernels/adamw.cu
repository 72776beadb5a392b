// SPDX-License-Identifier: Apache-2.0
// One AdamW step of a tensor in one pass over it.

struct Step {
  float grad_scale, beta1, beta2, shrink, rate, correction2, eps;  // shrink: 1 - lr * decay; rate: lr / correction1
  long long dither;  // below 0: to nearest
};

// The upper half of an f32 after a threshold was added to the lower one.
__device__ inline void set_dithered(bf16& to, float x, unsigned threshold) {
  to.bits = static_cast<unsigned short>((__float_as_uint(x) + (threshold >> 16)) >> 16);
}
__device__ inline void set_dithered(f16& to, float x, unsigned) { set(to, x); }
__device__ inline void set_dithered(float& to, float x, unsigned) { to = x; }

// master: what is updated, the parameter being rounded from it; null: the parameter itself.
template <class P, class G>
__global__ void step(P* param, const G* grad, float* mean, float* square, float* master, Step s, long long count) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const float g = to_float(grad[i]) * s.grad_scale;
    const float m = mean[i] * s.beta1 + g * (1 - s.beta1), v = square[i] * s.beta2 + g * g * (1 - s.beta2);
    mean[i] = m, square[i] = v;
    const float x = (master ? master[i] : to_float(param[i])) * s.shrink - s.rate * m / (sqrtf(v) / s.correction2 + s.eps);
    if (master) master[i] = x;
    if (s.dither >= 0)
      set_dithered(param[i], x, static_cast<unsigned>(s.dither) + static_cast<unsigned>(i) * 0x9e3779b9u);
    else
      set(param[i], x);
  }
}
