// Loops that are compiled more than once on x86-64: for its baseline, and for AVX2 or AVX-512,
// which a processor is asked for when the program runs. All give the same bits: nothing is fused
// that was not written as FusedMultiplyAdd.
#ifndef DE_CORE_ENGINE_WIDE_VECTORS_H_
#define DE_CORE_ENGINE_WIDE_VECTORS_H_

#if defined(__x86_64__)
#define DE_EIGHT_LANES "avx2,fma"
#define DE_SIXTEEN_LANES "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2,prfchw"
/// For a function that calls what is to be compiled for AVX2; all of that becomes part of it.
#define DE_WIDE_VECTORS [[gnu::target(DE_EIGHT_LANES), gnu::flatten]]
/// The same for AVX-512.
#define DE_WIDEST_VECTORS [[gnu::target(DE_SIXTEEN_LANES), gnu::flatten]]
#else
#define DE_WIDE_VECTORS
#define DE_WIDEST_VECTORS
#endif

namespace de::engine {

/// Whether functions marked DE_WIDE_VECTORS may be called. Tests set it to false, to compare.
inline bool& HasWideVectors() noexcept {
#if defined(__x86_64__)
  static bool has = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
#else
  static bool has = false;
#endif
  return has;
}

/// The same of DE_WIDEST_VECTORS. Processors without VBMI2, which is not used, are those that slow
/// down all they do while they use vectors of 512 bits.
inline bool& HasWidestVectors() noexcept {
#if defined(__x86_64__)
  static bool has = HasWideVectors() && __builtin_cpu_supports("avx512bw") != 0 &&
                    __builtin_cpu_supports("avx512dq") != 0 &&
                    __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("bmi") != 0 &&
                    __builtin_cpu_supports("bmi2") != 0 &&
                    __builtin_cpu_supports("avx512vbmi2") != 0;
#else
  static bool has = false;
#endif
  return has;
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_WIDE_VECTORS_H_
