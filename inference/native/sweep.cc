// The topic sweep of one shard: the law, the random numbers and the order of sums of inference/kernels/sweep.py, where the
// formulas are. Without a response new topics are those of that file to the last bit.
//
// A document is walked through from its first token to its last. Topics stand in the order in which `categorical` adds them
// up, member after member of all groups, so that the sums of groups are vector additions.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

constexpr int64_t kLanes = 4;  // numbers of a vector; groups of topics are padded to whole vectors, as Python does it
typedef float Vector __attribute__((vector_size(4 * kLanes), aligned(4)));
typedef uint32_t Counters __attribute__((vector_size(32)));
constexpr int64_t kCounters = 8;

// Threefry-2x32 with 20 rounds (Salmon et al. 2011), as JAX has it.
inline void turn(Counters& x0, Counters& x1, int bits) {
  x0 += x1;
  x1 = (x1 << bits) | (x1 >> (32 - bits));
  x1 ^= x0;
}

inline void four_turns(Counters& x0, Counters& x1, int a, int b, int c, int d, uint32_t k0, uint32_t k1) {
  turn(x0, x1, a);
  turn(x0, x1, b);
  turn(x0, x1, c);
  turn(x0, x1, d);
  x0 += k0;
  x1 += k1;
}

inline void threefry(uint32_t k0, uint32_t k1, Counters& x0, Counters& x1) {
  const uint32_t k2 = k0 ^ k1 ^ 0x1BD11BDAu;
  x0 += k0;
  x1 += k1;
  four_turns(x0, x1, 13, 15, 26, 6, k1, k2 + 1);
  four_turns(x0, x1, 17, 29, 16, 24, k2, k0 + 2);
  four_turns(x0, x1, 13, 15, 26, 6, k0, k1 + 3);
  four_turns(x0, x1, 17, 29, 16, 24, k1, k2 + 4);
  four_turns(x0, x1, 13, 15, 26, 6, k2, k0 + 5);
}

// The leading 23 bits as a number from [0, 1).
inline float unit(uint32_t bits) {
  const uint32_t word = (bits >> 9) | 0x3F800000u;
  float number;
  __builtin_memcpy(&number, &word, sizeof number);
  return number - 1.0f;
}

// Topic k is member k % members of group k / members, and stands in place member * stride + group.
struct Groups {
  int64_t groups, members, stride, room;
  explicit Groups(int64_t topics) {
    groups = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(topics))));
    members = (topics + groups - 1) / groups;
    stride = (groups + kLanes - 1) / kLanes * kLanes;
    room = stride * members;
  }
  int64_t place(int64_t topic) const { return (topic % members) * stride + topic / members; }
};

// log p(y | predictor) is linear * predictor + curvature * predictor^2 / 2 and a constant; without responses eta is empty.
ffi::Error Sweep(ffi::Buffer<ffi::U32> key, ffi::Buffer<ffi::S32> terms, ffi::Buffer<ffi::S32> topics,
                 ffi::Buffer<ffi::S32> start, ffi::Buffer<ffi::S32> rows, ffi::Buffer<ffi::S32> lengths,
                 ffi::Buffer<ffi::F32> document_topic, ffi::Buffer<ffi::F32> term_topic,
                 ffi::Buffer<ffi::F32> proportions, ffi::Buffer<ffi::S32> first_term, ffi::Buffer<ffi::F32> eta,
                 ffi::Buffer<ffi::F32> linear, ffi::Buffer<ffi::F32> curvature,
                 ffi::ResultBuffer<ffi::S32> new_topics, ffi::ResultBuffer<ffi::F32> counts,
                 ffi::ResultBuffer<ffi::F32> proposed, bool collapsed) {
  const int64_t width = terms.dimensions()[1], positions = terms.dimensions()[0];
  const int64_t batches = lengths.dimensions()[0], topics_number = document_topic.dimensions()[1];
  const Groups g(topics_number);
  const int64_t G = g.groups, M = g.members, S = g.stride;
  const bool own_proportions = proportions.dimensions()[0] > 1, labelled = first_term.element_count() > 0;
  const bool supervised = eta.element_count() > 0;
  const uint32_t k0 = key.typed_data()[0], k1 = key.typed_data()[1];
  const float *beta = term_topic.typed_data(), *response = eta.typed_data();

  std::vector<int64_t> place(topics_number);
  for (int64_t k = 0; k < topics_number; ++k) place[k] = g.place(k);
  std::vector<float> count(g.room), prior(g.room), both(g.room), running(G + 1);
  std::vector<float> uniform, accepting;
  std::vector<int32_t> own_terms, own_topics;  // of a document, one after the other

  std::copy(topics.typed_data(), topics.typed_data() + positions * width, new_topics->typed_data());
  std::fill(counts->typed_data(), counts->typed_data() + batches * width * topics_number, 0.0f);
  std::fill(proposed->typed_data(), proposed->typed_data() + batches * width, 0.0f);

  for (int64_t lane = 0; lane < batches * width; ++lane) {
    const int64_t length = lengths.typed_data()[lane], batch = lane / width;
    if (length == 0) continue;
    const int64_t document = rows.typed_data()[lane];
    const int64_t offset = labelled ? first_term.typed_data()[document] : 0;
    int32_t* z = new_topics->typed_data() + start.typed_data()[batch] * width + lane % width;
    const int32_t* w = terms.typed_data() + start.typed_data()[batch] * width + lane % width;

    own_terms.resize(length), own_topics.resize(length);
    const int64_t rounded = (length + kCounters - 1) / kCounters * kCounters;
    uniform.resize(rounded), accepting.resize(rounded);
    for (int64_t n = 0; n < rounded; n += kCounters) {
      Counters a, b;
      for (int64_t i = 0; i < kCounters; ++i) a[i] = static_cast<uint32_t>(document), b[i] = static_cast<uint32_t>(n + i);
      threefry(k0, k1, a, b);
      for (int64_t i = 0; i < kCounters; ++i) uniform[n + i] = unit(a[i]), accepting[n + i] = unit(b[i]);
    }
    for (int64_t n = 0; n < length; ++n) {
      own_terms[n] = w[n * width] + offset;
      own_topics[n] = z[n * width];
    }
    const float* given = proportions.typed_data() + (own_proportions ? document * topics_number : 0);
    const float* before = document_topic.typed_data() + document * topics_number;
    std::fill(count.begin(), count.end(), 0.0f);
    std::fill(prior.begin(), prior.end(), 0.0f);
    for (int64_t k = 0; k < topics_number; ++k) {
      prior[place[k]] = given[k];
      count[place[k]] = collapsed ? before[k] : 0.0f;
    }
    for (int64_t i = 0; i < g.room; ++i) both[i] = count[i] + prior[i];
    const float tokens = static_cast<float>(length), share = 1.0f / tokens;
    float predictor = 0.0f, slope = 0.0f, bend = 0.0f, here = 0.0f, moves = 0.0f;
    if (supervised) {
      for (int64_t k = 0; k < topics_number; ++k) predictor += before[k] / tokens * response[k];
      slope = linear.typed_data()[document];
      bend = curvature.typed_data()[document];
      here = predictor * (slope + 0.5f * bend * predictor);
    }
    for (int64_t n = 0; n < length; ++n) {
      const int32_t old = own_topics[n];
      const float* row = beta + own_terms[n] * g.room;
      if (n + 1 < length) {
        const float* next = beta + own_terms[n + 1] * g.room;
        for (int64_t k = 0; k < g.room; k += 16) __builtin_prefetch(next + k);
      }
      if (collapsed) {
        const int64_t from = place[old];
        both[from] = (count[from] -= 1.0f) + prior[from];
      }
      float total = 0.0f;
      for (int64_t i = 0; i < G; i += kLanes) {
        Vector sum = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int64_t m = 0; m < M; ++m) {
          const int64_t here = m * S + i;
          sum += *reinterpret_cast<const Vector*>(row + here) * *reinterpret_cast<const Vector*>(&both[here]);
        }
        for (int64_t lane = 0; lane < std::min(kLanes, G - i); ++lane) running[i + lane + 1] = total += sum[lane];
      }
      const float target = uniform[n] * total;
      int64_t chosen = 0, member = 0;
      for (int64_t i = 1; i < G; ++i) chosen += running[i] <= target;
      total = running[chosen];
      for (int64_t m = 0; m + 1 < M; ++m) {
        total += row[m * S + chosen] * both[m * S + chosen];
        member += total <= target;
      }
      int32_t topic = static_cast<int32_t>(std::min(chosen * M + member, topics_number - 1));
      moves += topic != old;
      if (supervised && topic != old) {
        const float without = predictor - share * response[old], moved = without + share * response[topic];
        const float there = moved * (slope + 0.5f * bend * moved);
        if (there > here + std::log(accepting[n]) || std::isinf(here)) {
          predictor = moved;
          here = there;
        } else {
          topic = old;
        }
      }
      if (collapsed) {
        const int64_t to = place[topic];
        both[to] = (count[to] += 1.0f) + prior[to];
      }
      own_topics[n] = topic;
    }
    for (int64_t n = 0; n < length; ++n) z[n * width] = own_topics[n];
    float* left = counts->typed_data() + lane * topics_number;
    if (collapsed) {
      for (int64_t k = 0; k < topics_number; ++k) left[k] = count[place[k]];
    } else {
      for (int64_t n = 0; n < length; ++n) left[own_topics[n]] += 1.0f;
    }
    proposed->typed_data()[lane] = moves;
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(topiczoo_sweep, Sweep,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::U32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::S32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<bool>("collapsed"));
