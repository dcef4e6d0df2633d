// Forces one SIMD level of the engine for tests.
#ifndef DE_CORE_TESTING_FORCED_LEVEL_H_
#define DE_CORE_TESTING_FORCED_LEVEL_H_

#include <algorithm>

#include "de_core/cc/engine/base/simd_level.h"

namespace de::engine {

/// While it exists, the engine uses `level`, or the current level if the current level is lower.
class ForcedLevel {
 public:
  explicit ForcedLevel(SimdLevel level) noexcept { ActiveSimdLevel() = std::min(level, before_); }
  ~ForcedLevel() { ActiveSimdLevel() = before_; }
  ForcedLevel(const ForcedLevel&) = delete;
  ForcedLevel& operator=(const ForcedLevel&) = delete;

  /// True if the current level is `level`.
  bool is(SimdLevel level) const noexcept { return ActiveSimdLevel() == level; }

 private:
  const SimdLevel before_ = ActiveSimdLevel();
};

}  // namespace de::engine

#endif  // DE_CORE_TESTING_FORCED_LEVEL_H_
