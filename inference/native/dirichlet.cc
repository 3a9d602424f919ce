// Dirichlet draws over the last axis: gammas, divided by their sum. Exact, each number by rejection.
//
// Shapes of 1 and more by Marsaglia & Tsang (2000), smaller ones by Ahrens & Dieter (1974, GS), which needs no normal number
// and accepts nearly every draw of a shape near 0. Random words follow from a number's place in the array and how often it
// was tried, so that threads change nothing. Sixteen numbers are tried at once; those of them that are not accepted by
// arithmetic alone, one in ten, are looked at one by one: from the first try, with the same words.

#include <cmath>
#include <limits>
#include <vector>

#include "shared.h"

namespace ffi = xla::ffi;

namespace topiczoo {
namespace {

constexpr int64_t kLanes = 16;
typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef float Vector __attribute__((vector_size(4 * kLanes)));
typedef int32_t Integers __attribute__((vector_size(4 * kLanes)));
constexpr float kE = 2.7182818284590452f;
constexpr float kLeast = -80.0f;  // e^x of less is taken for 0

// The midpoint of one of 2^23 cells of (0, 1).
inline float inside(uint32_t bits) { return unit(bits) + 0x1p-24f; }

// Natural logarithm of positive numbers that are normal: Cephes' logf, to a rounding.
inline Vector log_of(Vector x) {
  Integers bits = (Integers)x;
  Integers exponent = ((bits >> 23) & 0xFF) - 126;
  Vector m = (Vector)((bits & 0x007FFFFF) | 0x3F000000);  // [1/2, 1)
  const Integers low = m < 0.70710678f;
  exponent += low;  // true is -1
  m = m - 1.0f + (Vector)((Integers)m & low);
  const Vector z = m * m;
  Vector p = 7.0376836292e-2f * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const Vector e = __builtin_convertvector(exponent, Vector);
  return m + (p * m * z + e * -2.12194440e-4f - 0.5f * z) + e * 0.693359375f;
}

// e^x for x <= 88, and 0 below kLeast: Cephes' expf.
inline Vector exp_of(Vector x) {
  const Integers kept = x > kLeast;
  x = (Vector)((Integers)x & kept);
  Integers n = __builtin_convertvector(x * 1.44269504f + 0.5f, Integers);
  Vector whole = __builtin_convertvector(n, Vector);
  const Integers above = whole > x * 1.44269504f + 0.5f;  // towards minus infinity
  n += above;
  whole = __builtin_convertvector(n, Vector);
  x = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  Vector p = 1.9875691500e-4f * x + 1.3981999507e-3f;
  p = p * x + 8.3334519073e-3f;
  p = p * x + 4.1665795894e-2f;
  p = p * x + 1.6666665459e-1f;
  p = p * x + 5.0000001201e-1f;
  p = p * x * x + x + 1.0f;
  const Vector scaled = (Vector)((Integers)p + (n << 23));
  return (Vector)((Integers)scaled & kept);
}

// The normal quantile by Giles (2010): the middle of it, where w < 5, and the tails.
template <typename Number>
inline Number middle(Number x, Number w) {
  w = w - 2.5f;
  Number p = 2.81022636e-08f * w + 3.43273939e-07f;
  p = p * w - 3.5233877e-06f;
  p = p * w - 4.39150654e-06f;
  p = p * w + 0.00021858087f;
  p = p * w - 0.00125372503f;
  p = p * w - 0.00417768164f;
  p = p * w + 0.246640727f;
  p = p * w + 1.50140941f;
  return p * x * 1.41421356f;
}

inline float normal(float uniform) {
  const float x = 2.0f * uniform - 1.0f;
  float w = -std::log((1.0f - x) * (1.0f + x));
  if (w < 5.0f) return middle(x, w);
  w = std::sqrt(w) - 3.0f;
  float p = -0.000200214257f;
  for (float c : {0.000100950558f, 0.00134934322f, -0.00367342844f, 0.00573950773f, -0.0076224613f, 0.00943887047f,
                  1.00167406f, 2.83297682f})
    p = p * w + c;
  return p * x * 1.41421356f;
}

struct Key {
  uint32_t k0, k1;
};

// log of one gamma, however often it has to be tried.
float log_gamma(Key key, uint32_t place, float shape) {
  if (!std::isfinite(shape) || shape < 0.0f) return std::numeric_limits<float>::quiet_NaN();
  if (shape == 0.0f) return -std::numeric_limits<float>::infinity();
  for (uint32_t attempt = 0;; ++attempt) {
    uint32_t first = place, second = attempt;
    threefry(key.k0, key.k1, first, second);
    const float u = inside(first), accepting = inside(second);
    if (shape >= 1.0f) {
      const float d = shape - 1.0f / 3.0f, x = normal(u), base = 1.0f + x / std::sqrt(9.0f * d);
      if (base <= 0.0f) continue;
      const float log_v = 3.0f * std::log(base);
      if (std::log(accepting) < 0.5f * x * x + d * (1.0f - base * base * base + log_v)) return std::log(d) + log_v;
      continue;
    }
    const float b = (shape + kE) / kE, p = b * u;
    if (p <= 1.0f) {
      const float log_x = std::log(p) / shape;
      if (accepting <= std::exp(-std::exp(log_x))) return log_x;
    } else {
      const float x = -std::log((b - p) / shape);
      if (x > 0.0f && std::log(accepting) <= (shape - 1.0f) * std::log(x)) return std::log(x);
    }
  }
}

// One row of gammas: places of small shapes and of others are gathered, and sixteen of a kind tried at once.
struct Row {
  Key key;
  int64_t length;
  std::vector<int32_t> small, large;

  Row(Key key, int64_t length) : key(key), length(length), small(length + kLanes), large(length + kLanes) {}

  void draw(const float* shape, float* out, int64_t row) {
    const uint32_t first = static_cast<uint32_t>(row * length);
    int64_t num_small = 0, num_large = 0;
    for (int64_t i = 0; i < length; ++i) {
      const bool is_small = !(shape[i] >= 1.0f);
      small[num_small] = large[num_large] = static_cast<int32_t>(i);
      num_small += is_small, num_large += !is_small;
    }
    for (int64_t i = 0; i < num_small; i += kLanes) several<true>(shape, out, first, &small[i], num_small - i);
    for (int64_t i = 0; i < num_large; i += kLanes) several<false>(shape, out, first, &large[i], num_large - i);
    double total = 0.0, part[kLanes] = {};
    int64_t whole = length / kLanes * kLanes;
    for (int64_t i = 0; i < whole; i += kLanes)
      for (int64_t l = 0; l < kLanes; ++l) part[l] += out[i + l];
    for (double one : part) total += one;
    for (; whole < length; ++whole) total += out[whole];
    if (total > 1e-20) {
      const float scale = static_cast<float>(1.0 / total);
      for (int64_t i = 0; i < length; ++i) out[i] *= scale;
      return;
    }
    in_logs(shape, out, first);  // all next to nothing, or not a number
  }

  template <bool is_small>
  void several(const float* shape, float* out, uint32_t first, const int32_t* places, int64_t left) {
    const int64_t number = std::min(kLanes, left);
    Words a, b;
    Vector s;
    for (int64_t l = 0; l < kLanes; ++l) {
      const int32_t place = places[l < number ? l : 0];
      a[l] = first + place;
      b[l] = 0;
      s[l] = shape[place];
    }
    threefry(key.k0, key.k1, a, b);
    const Vector u = (Vector)((a >> 9) | 0x3F800000u) - 1.0f + 0x1p-24f;
    const Vector accepting = (Vector)((b >> 9) | 0x3F800000u) - 1.0f + 0x1p-24f;
    Vector x;
    Integers done;
    if (is_small) {
      const Vector p = u * ((s + kE) / kE);
      x = exp_of(log_of(p) / s);
      done = (p <= 1.0f) & (accepting < 1.0f - x);  // e^-x is more
    } else {
      const Vector centred = 2.0f * u - 1.0f, w = -log_of((1.0f - centred) * (1.0f + centred));
      const Vector n = middle(centred, w), d = s - 1.0f / 3.0f, nine = 9.0f * d;
      Vector root;
      for (int64_t l = 0; l < kLanes; ++l) root[l] = std::sqrt(nine[l]);
      const Vector base = 1.0f + n / root, squared = n * n;
      x = d * base * base * base;
      done = (w < 5.0f) & (base > 0.0f) & (accepting < 1.0f - 0.0331f * squared * squared);  // their squeeze
    }
    float found[kLanes];
    int32_t accepted[kLanes], all = -1;
    __builtin_memcpy(found, &x, sizeof x);
    __builtin_memcpy(accepted, &done, sizeof done);
    for (int64_t l = 0; l < kLanes; ++l) all &= accepted[l];
    for (int64_t l = 0; l < number; ++l) out[places[l]] = found[l];
    if (all) return;
    for (int64_t l = 0; l < number; ++l)
      if (!accepted[l]) out[places[l]] = std::exp(log_gamma(key, first + places[l], shape[places[l]]));
  }

  void in_logs(const float* shape, float* out, uint32_t first) {
    float most = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < length; ++i) most = std::max(most, out[i] = log_gamma(key, first + i, shape[i]));
    double total = 0.0;
    for (int64_t i = 0; i < length; ++i) total += out[i] = std::exp(out[i] - most);
    for (int64_t i = 0; i < length; ++i) out[i] = static_cast<float>(out[i] / total);
  }
};

ffi::Error Dirichlet(ffi::ThreadPool pool, ffi::Buffer<ffi::U32> key, ffi::Buffer<ffi::F32> concentration,
                     ffi::ResultBuffer<ffi::F32> out) {
  const int64_t rows = concentration.dimensions()[0], length = concentration.dimensions()[1];
  const Key words = {key.typed_data()[0], key.typed_data()[1]};
  const float* shape = concentration.typed_data();
  float* left = out->typed_data();
  const int64_t each = std::max<int64_t>(1, 4096 / std::max<int64_t>(length, 1));  // rows of a piece
  share_out(pool, (rows + each - 1) / each, [=] {
    return [=, one = Row(words, length)](int64_t piece) mutable {
      for (int64_t row = piece * each; row < std::min(rows, (piece + 1) * each); ++row)
        one.draw(shape + row * length, left + row * length, row);
    };
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace topiczoo

XLA_FFI_DEFINE_HANDLER_SYMBOL(topiczoo_dirichlet, topiczoo::Dirichlet,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::U32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
