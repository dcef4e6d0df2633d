// Compares a key with the words of an index line, and compiles a pass over keys for the
// processor's instructions.
#ifndef DE_CORE_ENGINE_SIMD_LINES_H_
#define DE_CORE_ENGINE_SIMD_LINES_H_

#include <cstdint>

#include "de_core/cc/engine/base/simd_targets.h"
#include "de_core/cc/engine/index/line_index.h"

#if defined(__x86_64__)
// GCC 12 wrongly warns about undefined registers inside its own AVX-512 functions.
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace de::engine {

/// The architecture's baseline instructions.
struct BaselineLines {
  /// Sets bit i if entry i of `line` is occupied and holds `word`.
  static uint32_t Match(const IndexLine& line, uint64_t word) noexcept {
    return MatchWord(line, word);
  }
};

#if defined(__x86_64__)

/// AVX-512: one comparison per line.
struct Avx512Lines {
  // Not always_inline: GCC would inline it into the baseline's lambdas first, and refuse.
  [[gnu::target(DE_AVX512_TARGET)]] static uint32_t Match(const IndexLine& line,
                                                          uint64_t word) noexcept {
    // The last three of the line's eight 64-bit lanes hold no words. `used` has no bits for them.
    const __m512i words = _mm512_set1_epi64(static_cast<long long>(word));
    return static_cast<uint32_t>(_mm512_cmpeq_epi64_mask(_mm512_load_si512(&line), words)) &
           line.used;
  }
};

/// Calls pass(Avx512Lines{}), compiled for AVX-512 with all functions that it calls. Takes `pass`
/// by value, so that its members can stay in registers.
template <typename Pass>
[[gnu::target(DE_AVX512_TARGET), gnu::flatten, gnu::noinline]] auto RunWithAvx512(Pass pass) {
  return pass(Avx512Lines{});
}

#endif  // defined(__x86_64__)

/// Calls pass(lines) and returns its result, where lines.Match compares with the best instructions
/// that DE_SIMD allows. `pass` should capture by value.
template <typename Pass>
auto AtSimdLevel(const Pass& pass) {
#if defined(__x86_64__)
  if (HasAvx512()) return RunWithAvx512(pass);
#endif
  return pass(BaselineLines{});
}

/// The result of probing only a key's home line.
struct HomeProbe {
  uint32_t row;   ///< the row whose word matches; compare a string key's bytes next
  uint32_t away;  ///< 1: no word matches and `row` is 0. The key is in a later line or absent.
};

/// Probes without branches on the line's contents. A mispredicted branch would delay the prefetch
/// of the next keys' memory until the line has arrived.
template <typename Lines>
__attribute__((always_inline)) inline HomeProbe ProbeHome(const Lines& lines, const IndexLine& line,
                                                          uint64_t word) noexcept {
  const uint32_t mask = lines.Match(line, word);
  const uint32_t away = mask == 0 ? 1 : 0;
  return {line.rows[LowestBit(mask | 1U << (kEntriesPerLine - 1))] & (away - 1), away};
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SIMD_LINES_H_
