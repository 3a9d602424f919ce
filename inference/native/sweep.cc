// The topic sweep: the law, the random numbers and the order of sums of inference/kernels/sweep.py, where the formulas are.
// Without a response new topics are those of that file to the last bit.
//
// A document is walked through from its first token to its last, four documents in step: what a token waits for, sums that
// follow from each other and the topic of the token before, leaves a processor time for three others. Topics stand in the
// order in which `categorical` adds them up, member after member of all groups, so that the sums of groups are vector
// additions.

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "shared.h"

namespace ffi = xla::ffi;

namespace topiczoo {
namespace {

constexpr int64_t kLanes = 8;  // numbers of a vector; groups of topics are padded to whole vectors
constexpr int64_t kInStep = 4;  // documents
typedef float Vector __attribute__((vector_size(4 * kLanes)));

inline Vector load(const float* from) {
  Vector found;
  __builtin_memcpy(&found, from, sizeof found);
  return found;
}

// Topic k is member k % members of group k / members, and stands in place member * stride + group. The weights of documents
// in step lie side by side, vector by vector: `spot` is the place there, of the first of them.
struct Groups {
  int64_t topics, groups, members, stride, room;
  std::vector<int32_t> place, spot;
  explicit Groups(int64_t number) : topics(number), place(number), spot(number) {
    groups = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(topics))));
    members = (topics + groups - 1) / groups;
    stride = (groups + kLanes - 1) / kLanes * kLanes;
    room = stride * members;
    for (int64_t k = 0; k < topics; ++k) {
      place[k] = (k % members) * stride + k / members;
      spot[k] = place[k] / kLanes * kLanes * kInStep + place[k] % kLanes;
    }
  }
};

// What a sweep is given, and where it leaves what it finds. log p(y | predictor) is linear * predictor + curvature *
// predictor^2 / 2 and a constant; without responses eta is null.
struct Sweep {
  const Groups& g;
  uint32_t k0, k1;
  bool collapsed;
  int64_t width, positions, batches;
  const int32_t *terms, *start, *rows, *lengths, *first_term;
  const float *document_topic, *beta, *proportions, *eta, *linear, *curvature;
  bool own_proportions;
  int32_t* topics;
  float *counts, *proposed;
};

// One document during the sweep. `both`, its counts plus its prior, belongs to all documents in step.
struct Walk {
  float* both = nullptr;
  std::vector<float> count, prior, running, uniform, accepting, known;
  std::vector<int32_t> terms, topics;
  int64_t length = 0, lane = 0;
  int32_t* z = nullptr;
  float predictor = 0, slope = 0, bend = 0, here = 0, moves = 0;

  explicit Walk(const Groups& g) : count(g.topics), prior(g.topics), running(g.stride + 1) {}

  void begin(const Sweep& s, int64_t piece, int64_t in_batch) {
    const Groups& g = s.g;
    lane = piece * s.width + in_batch;
    length = s.lengths[lane];
    if (length == 0) return;
    const int64_t document = s.rows[lane], first = (piece / s.batches * s.positions + s.start[piece]) * s.width + in_batch;
    const int32_t* w = s.terms + first;
    const int32_t offset = s.first_term ? s.first_term[document] : 0;
    z = s.topics + first;
    terms.resize(length), topics.resize(length);
    const int64_t rounded = (length + kCounters - 1) / kCounters * kCounters;
    uniform.resize(rounded), accepting.resize(rounded);
    for (int64_t n = 0; n < rounded; n += kCounters) {
      Counters a, b;
      for (int64_t i = 0; i < kCounters; ++i) a[i] = static_cast<uint32_t>(document), b[i] = static_cast<uint32_t>(n + i);
      threefry(s.k0, s.k1, a, b);
      for (int64_t i = 0; i < kCounters; ++i) uniform[n + i] = unit(a[i]), accepting[n + i] = unit(b[i]);
    }
    for (int64_t n = 0; n < length; ++n) terms[n] = w[n * s.width] + offset, topics[n] = z[n * s.width];
    const float* given = s.proportions + (s.own_proportions ? document * g.topics : 0);
    const float* before = s.document_topic ? s.document_topic + document * g.topics : counted(g.topics);
    for (int64_t k = 0; k < g.topics; ++k) {
      prior[k] = given[k];
      count[k] = s.collapsed ? before[k] : 0.0f;
      both[g.spot[k]] = count[k] + prior[k];
    }
    predictor = moves = 0.0f;
    if (s.eta) {
      const float tokens = static_cast<float>(length);
      for (int64_t k = 0; k < g.topics; ++k) predictor += before[k] / tokens * s.eta[k];
      slope = s.linear[document];
      bend = s.curvature[document];
      here = predictor * (slope + 0.5f * bend * predictor);
    }
  }

  // How often the document has each topic, where nobody has counted.
  const float* counted(int64_t number) {
    known.assign(number, 0.0f);
    for (int64_t n = 0; n < length; ++n) known[topics[n]] += 1.0f;
    return known.data();
  }

  void take_out(const Sweep& s, int64_t n) {
    if (!s.collapsed) return;
    const int32_t old = topics[n];
    both[s.g.spot[old]] = (count[old] -= 1.0f) + prior[old];
  }

  // The topic that words propose is taken, or refused by the response.
  void put_in(const Sweep& s, int64_t n, int32_t topic) {
    const int32_t old = topics[n];
    moves += topic != old;
    if (s.eta && topic != old) {
      const float share = 1.0f / static_cast<float>(length);
      const float without = predictor - share * s.eta[old], moved = without + share * s.eta[topic];
      const float there = moved * (slope + 0.5f * bend * moved);
      if (there > here || there > here + std::log(accepting[n]) || std::isinf(here)) {
        predictor = moved;
        here = there;
      } else {
        topic = old;
      }
    }
    if (s.collapsed) both[s.g.spot[topic]] = (count[topic] += 1.0f) + prior[topic];
    topics[n] = topic;
  }

  void end(const Sweep& s) {
    float* left = s.counts + lane * s.g.topics;
    for (int64_t n = 0; n < length; ++n) z[n * s.width] = topics[n];
    if (s.collapsed && length) {
      std::copy(count.begin(), count.end(), left);
    } else {
      std::fill(left, left + s.g.topics, 0.0f);
      for (int64_t n = 0; n < length; ++n) left[topics[n]] += 1.0f;
    }
    s.proposed[lane] = length ? moves : 0.0f;
  }
};

// A new topic for token n of each of some documents: a group of topics, then a topic of the group.
template <int Number>
inline void step(const Sweep& s, Walk* walks, int64_t n) {
  const int64_t G = s.g.groups, M = s.g.members, S = s.g.stride;
  const float *row[Number], *next[Number], *both = walks[0].both;  // of the others behind it
  float total[Number], target[Number], *running[Number];
  int32_t chosen[Number], member[Number];
  for (int d = 0; d < Number; ++d) {
    row[d] = s.beta + walks[d].terms[n] * s.g.room;
    running[d] = walks[d].running.data();
    walks[d].take_out(s, n);
    next[d] = s.beta + walks[d].terms[std::min(n + 1, walks[d].length - 1)] * s.g.room;
    total[d] = 0.0f;
  }
  for (int64_t i = 0; i < G; i += kLanes) {
    Vector sum[Number];
    for (int d = 0; d < Number; ++d) sum[d] = Vector{};
    int64_t ahead = i * M;  // the topics of the next term are on their way while those of this one are added up
    for (int64_t at = i; at < s.g.room; at += S, ahead += kLanes)
      for (int d = 0; d < Number; ++d) {
        __builtin_prefetch(next[d] + ahead);
        sum[d] += load(row[d] + at) * load(both + at * kInStep + d * kLanes);
      }
    for (int64_t lane = 0; lane < kLanes; ++lane)
      for (int d = 0; d < Number; ++d) running[d][i + lane + 1] = total[d] += sum[d][lane];
  }
  const float *left[Number], *right[Number];
  for (int d = 0; d < Number; ++d) {
    target[d] = walks[d].uniform[n] * total[d];
    int32_t passed = 0;
    for (int64_t i = 1; i < G; ++i) passed += running[d][i] <= target[d];
    chosen[d] = passed;
    member[d] = 0;
    total[d] = passed ? running[d][passed] : 0.0f;
    left[d] = row[d] + passed;
    right[d] = walks[d].both + passed / kLanes * kLanes * kInStep + passed % kLanes;
  }
  for (int64_t m = 0; m + 1 < M; ++m)
    for (int d = 0; d < Number; ++d) {
      total[d] += left[d][m * S] * right[d][m * S * kInStep];
      member[d] += total[d] <= target[d];
    }
  for (int d = 0; d < Number; ++d) {
    // Sums are rounded: the last of a group might seem to be reached though it has no weight.
    while (member[d] && left[d][member[d] * S] * right[d][member[d] * S * kInStep] <= 0.0f) --member[d];
    walks[d].put_in(s, n, chosen[d] * M + member[d]);
  }
}

// Documents of a batch, four at a time: neighbours are about as long as each other.
struct InStep {
  const Sweep& s;
  std::vector<Vector> both;  // in places where no vector is of two cache lines
  std::vector<Walk> walks;

  explicit InStep(const Sweep& s) : s(s), both(s.g.room / kLanes * kInStep), walks(kInStep, Walk(s.g)) {}

  void operator()(int64_t piece) {
    for (int64_t first = 0; first < s.width; first += kInStep) {
      const int64_t number = std::min(kInStep, s.width - first);
      int64_t together = number == kInStep ? std::numeric_limits<int64_t>::max() : 0;
      for (int64_t d = 0; d < number; ++d) {
        walks[d].both = reinterpret_cast<float*>(both.data() + d);
        walks[d].begin(s, piece, first + d);
        together = std::min(together, walks[d].length);
      }
      for (int64_t n = 0; n < together; ++n) step<kInStep>(s, walks.data(), n);
      for (int64_t d = 0; d < number; ++d) {
        for (int64_t n = together; n < walks[d].length; ++n) step<1>(s, &walks[d], n);
        walks[d].end(s);
      }
    }
  }
};

ffi::Error SweepAll(ffi::ThreadPool pool, ffi::Buffer<ffi::U32> key, ffi::Buffer<ffi::S32> terms,
                    ffi::Buffer<ffi::S32> topics, ffi::Buffer<ffi::S32> start, ffi::Buffer<ffi::S32> rows,
                    ffi::Buffer<ffi::S32> lengths, ffi::Buffer<ffi::F32> document_topic,
                    ffi::Buffer<ffi::F32> beta, ffi::Buffer<ffi::F32> proportions,
                    ffi::Buffer<ffi::S32> first_term, ffi::Buffer<ffi::F32> eta, ffi::Buffer<ffi::F32> linear,
                    ffi::Buffer<ffi::F32> curvature, ffi::ResultBuffer<ffi::S32> new_topics,
                    ffi::ResultBuffer<ffi::F32> counts, ffi::ResultBuffer<ffi::F32> proposed, bool collapsed) {
  const int64_t shards = lengths.dimensions()[0];
  const Groups g(counts->dimensions()[3]);
  if (beta.dimensions()[1] != g.room) return ffi::Error::InvalidArgument("topics of beta are not in their places");
  std::copy(topics.typed_data(), topics.typed_data() + topics.element_count(), new_topics->typed_data());
  const Sweep s = {g, key.typed_data()[0], key.typed_data()[1], collapsed, terms.dimensions()[2], terms.dimensions()[1],
                   lengths.dimensions()[1], terms.typed_data(), start.typed_data(), rows.typed_data(), lengths.typed_data(),
                   first_term.element_count() ? first_term.typed_data() : nullptr,
                   document_topic.element_count() ? document_topic.typed_data() : nullptr, beta.typed_data(),
                   proportions.typed_data(), eta.element_count() ? eta.typed_data() : nullptr,
                   linear.typed_data(), curvature.typed_data(), proportions.dimensions()[0] > 1,
                   new_topics->typed_data(), counts->typed_data(), proposed->typed_data()};
  share_out(pool, shards * s.batches, [&] {
    return InStep(s);
  });
  return ffi::Error::Success();
}

// How often each term has each topic, [topics, terms]; terms that are none are left out.
ffi::Error Count(ffi::Buffer<ffi::S32> terms, ffi::Buffer<ffi::S32> topics, ffi::ResultBuffer<ffi::F32> table) {
  const int64_t num_terms = table->dimensions()[1], number = terms.element_count();
  const int32_t *term = terms.typed_data(), *topic = topics.typed_data();
  float* left = table->typed_data();
  std::fill(left, left + table->element_count(), 0.0f);
  constexpr int64_t kAhead = 16;
  for (int64_t i = 0; i < number; ++i) {
    if (i + kAhead < number) __builtin_prefetch(left + topic[i + kAhead] * num_terms + term[i + kAhead], 1);
    if (term[i] < num_terms) left[topic[i] * num_terms + term[i]] += 1.0f;
  }
  return ffi::Error::Success();
}

}  // namespace
}  // namespace topiczoo

XLA_FFI_DEFINE_HANDLER_SYMBOL(topiczoo_sweep, topiczoo::SweepAll,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
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

XLA_FFI_DEFINE_HANDLER_SYMBOL(topiczoo_count, topiczoo::Count,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
