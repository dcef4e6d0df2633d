// Loops that are compiled twice on x86-64: for its baseline, and for AVX2, which a processor is
// asked for when the program runs. Both give the same bits: AVX2 alone has no fused multiply-add.
#ifndef DE_CORE_ENGINE_WIDE_VECTORS_H_
#define DE_CORE_ENGINE_WIDE_VECTORS_H_

#if defined(__x86_64__)
/// For a function that calls what is to be compiled for AVX2; all of that becomes part of it.
#define DE_WIDE_VECTORS [[gnu::target("avx2"), gnu::flatten]]
#else
#define DE_WIDE_VECTORS
#endif

namespace de::engine {

/// Whether functions marked DE_WIDE_VECTORS may be called. Tests set it to false, to compare.
inline bool& HasWideVectors() noexcept {
#if defined(__x86_64__)
  static bool has = __builtin_cpu_supports("avx2") != 0;
#else
  static bool has = false;
#endif
  return has;
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_WIDE_VECTORS_H_
