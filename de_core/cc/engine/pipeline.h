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
inline constexpr size_t kPipelineLag = 8;
/// Keys a stage handles before the next stage begins: few, so that requests for memory are spread
/// evenly over time, which matters for wide rows.
inline constexpr size_t kPipelineStride = 8;
/// Keys under way. What the stages know of key j they keep at index j % kPipelineRing.
inline constexpr size_t kPipelineRing = 64;
static_assert(kPipelineRing >= 3 * kPipelineLag + kPipelineStride,
              "a key must not be overwritten before its last stage");

/// Calls ask(j), probe(j), settle(j) and use(j) for every j in [begin, end), each in ascending
/// order, with kPipelineLag keys between the stages.
template <typename Ask, typename Probe, typename Settle, typename Use>
DE_ALWAYS_INLINE inline void RunPipeline(size_t begin, size_t end, const Ask& ask,
                                         const Probe& probe, const Settle& settle, const Use& use) {
  const auto stage = [&](size_t step, size_t lag, const auto& work) DE_ALWAYS_INLINE {
    if (step < begin + lag) return;
    const size_t last = std::min(end, step - lag + kPipelineStride);
    for (size_t j = step - lag; j < last; ++j) work(j);
  };
  for (size_t step = begin; step < end + 3 * kPipelineLag + kPipelineStride;
       step += kPipelineStride) {
    stage(step, 0, ask);
    stage(step, kPipelineLag, probe);
    stage(step, 2 * kPipelineLag, settle);
    stage(step, 3 * kPipelineLag, use);
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_PIPELINE_H_
