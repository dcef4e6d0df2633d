// Compiles loops several times on x86-64: for the baseline, AVX2 and AVX-512. simd_level.h selects
// one at run time. All give the same bits, because a product and a sum are rounded together only in
// FusedMultiplyAdd.
#ifndef DE_CORE_ENGINE_SIMD_TARGETS_H_
#define DE_CORE_ENGINE_SIMD_TARGETS_H_

#include "de_core/cc/engine/base/simd_level.h"

#if defined(__x86_64__)
#define DE_AVX2_TARGET "avx2,fma"
#define DE_AVX512_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2,prfchw"
/// Compiles a function for AVX2. All functions that it calls are inlined, so they are too.
#define DE_AVX2_FUNCTION [[gnu::target(DE_AVX2_TARGET), gnu::flatten]]
#else
#define DE_AVX2_FUNCTION
#endif

namespace de::engine {

/// True if functions marked DE_AVX2_FUNCTION may be called.
inline bool HasAvx2() noexcept { return ActiveSimdLevel() >= SimdLevel::kAvx2; }

/// True if functions for AVX-512 may be called.
inline bool HasAvx512() noexcept { return ActiveSimdLevel() >= SimdLevel::kAvx512; }

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SIMD_TARGETS_H_
