// The pipeline of table operations on batches of keys. Its stages work on different keys at the
// same time: prefetch a key's index line; probe it and prefetch the row, or the next line if the
// key may be there; resolve keys that the first line did not decide; use the row. So memory latency
// and computation overlap.
#ifndef DE_CORE_ENGINE_PIPELINE_H_
#define DE_CORE_ENGINE_PIPELINE_H_

#include <algorithm>
#include <cstddef>

/// For the stages and the functions they call. A closure that is not inlined keeps its state in
/// memory, not in registers.
#define DE_ALWAYS_INLINE __attribute__((always_inline))

namespace de::engine {

/// Number of keys between prefetching memory and using it: enough to hide the latency.
inline constexpr size_t kPipelineLag = 16;
/// Number of keys that a stage handles before the next stage runs. A small number spreads memory
/// requests evenly, which matters for wide rows. Eight rows of four lines exceed a core's line fill
/// buffers. With four rows instead, a lookup of dim 64 takes a fifth less time.
inline constexpr size_t kPipelineStride = 4;
/// Greatest number of keys in progress. The stages store data per key in rings of this size.
inline constexpr size_t kPipelineRing = 64;
static_assert(kPipelineRing % kPipelineStride == 0, "a stride must not wrap round");
static_assert(kPipelineRing >= 3 * kPipelineLag + kPipelineStride,
              "a key must not be overwritten before its last stage");

struct NoRest {
  void operator()(size_t) const noexcept {}
};

/// Calls ask(j, at), fetch_line(j, at), probe(j, at), fetch_row(j, at), settle(j, at) and use(j,
/// at) for every j in [begin, end), each in ascending order, with kPipelineLag keys between ask,
/// probe, settle and use. `at` is the key's position in a ring, the same in all stages. The two
/// fetch stages only prefetch, in separate loops: a prefetch that misses the TLB blocks later
/// instructions once the processor's window is full. Consecutive prefetches are translated
/// together.
///
/// Calls rest(used) between the stages, when all keys before `used` are done. `rest` can do other
/// work while memory is loading.
template <typename Ask, typename FetchLine, typename Probe, typename FetchRow, typename Settle,
          typename Use, typename Rest = NoRest>
DE_ALWAYS_INLINE inline void RunPipeline(size_t begin, size_t end, const Ask& ask,
                                         const FetchLine& fetch_line, const Probe& probe,
                                         const FetchRow& fetch_row, const Settle& settle,
                                         const Use& use, const Rest& rest = {}) {
  const auto stage = [&](size_t step, size_t lag, const auto& work) DE_ALWAYS_INLINE {
    if (step < begin + lag) return;
    const size_t last = std::min(end, step - lag + kPipelineStride);
    for (size_t j = step - lag; j < last; ++j) work(j, (j - begin) % kPipelineRing);
  };
  const auto whole = [&](size_t first, const auto& work) DE_ALWAYS_INLINE {
    const size_t at = (first - begin) % kPipelineRing;
    for (size_t k = 0; k < kPipelineStride; ++k) work(first + k, at + k);
  };
  constexpr size_t kLast = 3 * kPipelineLag;
  for (size_t step = begin; step < end + kLast + kPipelineStride; step += kPipelineStride) {
    if (step >= begin + kLast && step + kPipelineStride <= end) {
      // All stages have work, so loop lengths are compile-time constants.
      whole(step, ask);
      whole(step, fetch_line);
      whole(step - kPipelineLag, probe);
      whole(step - kPipelineLag, fetch_row);
      whole(step - 2 * kPipelineLag, settle);
      whole(step - kLast, use);
      rest(step - kLast + kPipelineStride);
    } else {
      stage(step, 0, ask);
      stage(step, 0, fetch_line);
      stage(step, kPipelineLag, probe);
      stage(step, kPipelineLag, fetch_row);
      stage(step, 2 * kPipelineLag, settle);
      stage(step, kLast, use);
    }
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_PIPELINE_H_
