// What the kernels share: random numbers that follow from counters, and work shared out to XLA's threads.

#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "xla/ffi/api/ffi.h"

namespace topiczoo {

constexpr int64_t kCounters = 8;
typedef uint32_t Counters __attribute__((vector_size(4 * kCounters)));

// Threefry-2x32 with 20 rounds (Salmon et al. 2011), as JAX has it; of eight counters at once, or of one.
template <typename Words>
inline void turn(Words& x0, Words& x1, int bits) {
  x0 += x1;
  x1 = (x1 << bits) | (x1 >> (32 - bits));
  x1 ^= x0;
}

template <typename Words>
inline void four_turns(Words& x0, Words& x1, int a, int b, int c, int d, uint32_t k0, uint32_t k1) {
  turn(x0, x1, a);
  turn(x0, x1, b);
  turn(x0, x1, c);
  turn(x0, x1, d);
  x0 += k0;
  x1 += k1;
}

template <typename Words>
inline void threefry(uint32_t k0, uint32_t k1, Words& x0, Words& x1) {
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

// work(i) for i = 0, ..., number - 1, by whichever thread is free; what it does must not depend on who does it.
// make() gives each thread a work of its own, with its own room. The caller works as well and waits for nothing but pieces
// that have been begun, so that no number of callers can wait for each other.
template <typename Make>
void share_out(xla::ffi::ThreadPool pool, int64_t number, Make make) {
  struct Shared {
    std::atomic<int64_t> next{0};
    std::mutex mutex;
    std::condition_variable all_done;
    int64_t done = 0;
  };
  auto shared = std::make_shared<Shared>();
  auto run = [shared, number, make] {
    int64_t i = shared->next.fetch_add(1), finished = 0;
    if (i >= number) return;  // too late: what `make` refers to may be gone
    {
      auto work = make();
      for (; i < number; i = shared->next.fetch_add(1), ++finished) work(i);
    }
    std::lock_guard<std::mutex> lock(shared->mutex);
    if ((shared->done += finished) == number) shared->all_done.notify_all();
  };
  const int64_t helpers = std::min<int64_t>(pool.num_threads(), number) - 1;
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule(decltype(run)(run));
  run();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->all_done.wait(lock, [&] { return shared->done == number; });
}

}  // namespace topiczoo
