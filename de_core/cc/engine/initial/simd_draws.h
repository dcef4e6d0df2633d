// Draws random rows of floats with vectors of eight or sixteen lanes: eight_lanes::DrawRows and
// sixteen_lanes::DrawRows. Call them only from functions of the same target.
#ifndef DE_CORE_ENGINE_SIMD_DRAWS_H_
#define DE_CORE_ENGINE_SIMD_DRAWS_H_

#include "de_core/cc/engine/base/simd_lanes.h"

#if defined(DE_SIMD_DRAWS)

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "de_core/cc/engine/initial/key_random.h"
#include "de_core/cc/engine/initial/random_draws.h"
#include "de_core/cc/engine/rows/scalar_types.h"

namespace de::engine {

/// Number of rows whose KeyRandom::Counters are computed together.
inline constexpr size_t kRowsAhead = 32;

#define DE_LANES EightLanes
#define DE_TARGET DE_EIGHT
#define DE_TARGET_CALL [[gnu::target(DE_AVX2_TARGET), gnu::flatten, gnu::noinline]]
namespace eight_lanes {
#include "de_core/cc/engine/initial/simd_draws.inc"
}  // namespace eight_lanes
#undef DE_LANES
#undef DE_TARGET
#undef DE_TARGET_CALL

#define DE_LANES SixteenLanes
#define DE_TARGET DE_SIXTEEN
#define DE_TARGET_CALL DE_SIXTEEN_CALL
namespace sixteen_lanes {
#include "de_core/cc/engine/initial/simd_draws.inc"
}  // namespace sixteen_lanes
#undef DE_LANES
#undef DE_TARGET
#undef DE_TARGET_CALL

}  // namespace de::engine

#endif  // defined(DE_SIMD_DRAWS)
#endif  // DE_CORE_ENGINE_SIMD_DRAWS_H_
