// The pipeline of every batched verb. Stages, some keys apart: ask for the index line of a key;
// probe it and ask for the row, or for the next line where the key may lie there; settle what the
// first line did not tell; use the row. Memory works while the processor does.
#ifndef DE_CORE_ENGINE_PIPELINE_H_
#define DE_CORE_ENGINE_PIPELINE_H_

#include <algorithm>
#include <cstddef>

/// For the stages and what they call: a closure that is not inlined keeps its state in memory.
#define DE_ALWAYS_INLINE __attribute__((always_inline))

namespace de::engine {

/// Keys between asking for memory and using it: enough to hide its latency.
inline constexpr size_t kPipelineLag = 16;
/// Keys a stage handles before the next stage begins: few, so that requests for memory are spread
/// evenly over time, which matters for wide rows. Eight rows of four lines ask for more than a core
/// has buffers for; with four a lookup of dim 64 takes a fifth less time.
inline constexpr size_t kPipelineStride = 4;
/// Keys under way: what the stages know of a key they keep in rings of this size.
inline constexpr size_t kPipelineRing = 64;
static_assert(kPipelineRing % kPipelineStride == 0, "a stride must not wrap round");
static_assert(kPipelineRing >= 3 * kPipelineLag + kPipelineStride,
              "a key must not be overwritten before its last stage");

struct NoRest {
  void operator()(size_t) const noexcept {}
};

/// Calls ask(j, at), fetch_line(j, at), probe(j, at), fetch_row(j, at), settle(j, at) and use(j,
/// at) for every j in [begin, end), each in ascending order, with kPipelineLag keys between ask,
/// probe, settle and use; `at` is the key's place in a ring, the same in all stages. The two that
/// fetch do nothing but ask for memory, in loops of their own: where a request misses the TLB, the
/// processor holds up all that comes after it once its window is full of instructions; requests
/// that follow each other closely are translated at once.
///
/// rest(used) is called between them, when all keys before `used` were used: for work that is best
/// done while memory is on its way.
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
      // All stages have work: loops of a length known to the compiler.
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
