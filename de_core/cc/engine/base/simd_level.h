// Which vectors the engine uses: the widest that the processor has, or those that DE_SIMD names.
#ifndef DE_CORE_ENGINE_SIMD_LEVEL_H_
#define DE_CORE_ENGINE_SIMD_LEVEL_H_

#include <cstdint>

#include "de_core/cc/engine/base/status.h"

namespace de::engine {

/// Each level includes those before it. All give the same bits.
enum class SimdLevel : uint8_t {
  kScalar,  ///< what every processor of the architecture has
  kAvx2,    ///< x86-64 with AVX2 and FMA
  kAvx512,  ///< x86-64 with AVX-512 F, BW, DQ, VL and VBMI2
};

/// The highest level that this processor has.
SimdLevel BestSimdLevel() noexcept;

/// Reads a level's name: scalar, avx2 or avx512. Null or "" means the best level. InvalidArgument
/// for another name, and for a level that this processor lacks.
Status ParseSimdLevel(const char* name, SimdLevel* level);

/// The error of the environment variable DE_SIMD, if it has one. A process with such an error makes
/// and opens no table.
Status SimdLevelStatus();

/// The level in use. DE_SIMD is read at the first call; a DE_SIMD with an error means the best
/// level. Tests set the level, while no table is at work.
SimdLevel& ActiveSimdLevel() noexcept;

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SIMD_LEVEL_H_
