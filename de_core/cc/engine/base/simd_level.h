// The SIMD level of the engine: the best that the processor supports, or the one that DE_SIMD
// names.
#ifndef DE_CORE_ENGINE_SIMD_LEVEL_H_
#define DE_CORE_ENGINE_SIMD_LEVEL_H_

#include <cstdint>

#include "de_core/cc/engine/base/status.h"

namespace de::engine {

/// Instruction sets. Each level includes the levels before it. The engine computes the same bits at
/// all levels.
enum class SimdLevel : uint8_t {
  kScalar,  ///< the architecture's baseline
  kAvx2,    ///< x86-64 with AVX2 and FMA
  kAvx512,  ///< x86-64 with AVX-512 F, BW, DQ, VL and VBMI2
};

/// Returns the highest level that this processor supports.
SimdLevel BestSimdLevel() noexcept;

/// Parses a level's name: scalar, avx2 or avx512. Null or "" means the best level. Returns
/// InvalidArgument for another name, or for a level that this processor does not support.
Status ParseSimdLevel(const char* name, SimdLevel* level);

/// Returns the error in the environment variable DE_SIMD, if any. With an error, the process cannot
/// create or open tables.
Status SimdLevelStatus();

/// The level in use. The first call reads DE_SIMD; an invalid DE_SIMD selects the best level. Tests
/// may set the level while no table is in use.
SimdLevel& ActiveSimdLevel() noexcept;

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SIMD_LEVEL_H_
