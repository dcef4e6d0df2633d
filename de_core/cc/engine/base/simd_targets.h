// Loops that are compiled more than once on x86-64: for its baseline, and for AVX2 or AVX-512,
// which simd_level.h chooses between when the program runs. All give the same bits: nothing is
// fused that was not written as FusedMultiplyAdd.
#ifndef DE_CORE_ENGINE_SIMD_TARGETS_H_
#define DE_CORE_ENGINE_SIMD_TARGETS_H_

#include "de_core/cc/engine/base/simd_level.h"

#if defined(__x86_64__)
#define DE_AVX2_TARGET "avx2,fma"
#define DE_AVX512_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2,prfchw"
/// For a function that calls what is to be compiled for AVX2; all of that becomes part of it.
#define DE_AVX2_FUNCTION [[gnu::target(DE_AVX2_TARGET), gnu::flatten]]
/// The same for AVX-512.
#define DE_AVX512_FUNCTION [[gnu::target(DE_AVX512_TARGET), gnu::flatten]]
#else
#define DE_AVX2_FUNCTION
#define DE_AVX512_FUNCTION
#endif

namespace de::engine {

/// Whether functions marked DE_AVX2_FUNCTION may be called.
inline bool HasAvx2() noexcept { return ActiveSimdLevel() >= SimdLevel::kAvx2; }

/// Whether functions marked DE_AVX512_FUNCTION may be called.
inline bool HasAvx512() noexcept { return ActiveSimdLevel() >= SimdLevel::kAvx512; }

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SIMD_TARGETS_H_
