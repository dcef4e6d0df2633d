// The pipeline of table operations on batches of keys. Its stages work on different keys at the
// same time: hash a key and prefetch its index line; some keys later compare the line's words and
// prefetch the row; some keys later use the row. So memory latency and computation overlap.
#ifndef DE_CORE_ENGINE_PIPELINE_H_
#define DE_CORE_ENGINE_PIPELINE_H_

#include <algorithm>
#include <cstddef>

/// For the stages and the functions they call. A closure that is not inlined keeps its state in
/// memory, not in registers.
#define DE_ALWAYS_INLINE __attribute__((always_inline))

namespace de::engine {

/// Number of keys between two stages: enough to hide the latency of memory.
inline constexpr size_t kPipelineLag = 32;
/// The stages store data per key in rings of this size.
inline constexpr size_t kPipelineRing = 128;
/// `rest` is called after at most this many steps.
inline constexpr size_t kStepsPerRest = 32;
/// Number of items that a loop without a pipeline prefetches ahead.
inline constexpr size_t kPrefetchAhead = 16;

/// Calls stage(j, at) for each of `stages` and for every j in [begin, end). A stage handles the
/// keys in ascending order, kPipelineLag keys after the stage before it; fewer in a short batch.
/// `at` is the key's position in a ring, the same in all stages. Calls rest(done) now and then and
/// at the end, when the last stage is done with the keys before `done`.
template <typename Rest, typename... Stages>
DE_ALWAYS_INLINE inline void RunPipelineWithRests(size_t begin, size_t end, const Rest& rest,
                                                  const Stages&... stages) {
  constexpr size_t kLast = (sizeof...(Stages) - 1) * kPipelineLag;
  static_assert(kLast + kStepsPerRest <= kPipelineRing,
                "a key must not be overwritten before its last stage and the next rest");
  const auto run = [begin](const auto& stage, size_t j)
                       DE_ALWAYS_INLINE { stage(j, (j - begin) % kPipelineRing); };
  const size_t count = end - begin;
  const size_t lag = std::min(kPipelineLag, count);
  const size_t last = (sizeof...(Stages) - 1) * lag;
  for (size_t step = begin; step < end + last;) {
    const bool whole = step >= begin + kLast && step < end;  // all stages have work
    const size_t stop = std::min(step + kStepsPerRest, whole ? end : end + last);
    if (whole) {
      for (; step < stop; ++step) {
        size_t j = step;
        ((run(stages, j), j -= kPipelineLag), ...);
      }
    } else {
      for (; step < stop; ++step) {
        // Before the first key, `j` wraps round to a number beyond the last key.
        size_t j = step;
        ((j - begin < count ? run(stages, j) : void(), j -= lag), ...);
      }
    }
    if (step > begin + last) rest(step - last);
  }
}

/// The same without rests.
template <typename... Stages>
DE_ALWAYS_INLINE inline void RunPipeline(size_t begin, size_t end, const Stages&... stages) {
  RunPipelineWithRests(begin, end, [](size_t) {}, stages...);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_PIPELINE_H_
