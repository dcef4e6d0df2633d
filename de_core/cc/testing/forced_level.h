// One level of vectors for the engine, whatever the processor has.
#ifndef DE_CORE_TESTING_FORCED_LEVEL_H_
#define DE_CORE_TESTING_FORCED_LEVEL_H_

#include <algorithm>

#include "de_core/cc/engine/base/simd_level.h"

namespace de::engine {

/// Lets the engine use one level while it lives, or the level in use before where that is lower.
class ForcedLevel {
 public:
  explicit ForcedLevel(SimdLevel level) noexcept { ActiveSimdLevel() = std::min(level, before_); }
  ~ForcedLevel() { ActiveSimdLevel() = before_; }
  ForcedLevel(const ForcedLevel&) = delete;
  ForcedLevel& operator=(const ForcedLevel&) = delete;

  /// Whether the level in use is the one that was asked for.
  bool is(SimdLevel level) const noexcept { return ActiveSimdLevel() == level; }

 private:
  const SimdLevel before_ = ActiveSimdLevel();
};

}  // namespace de::engine

#endif  // DE_CORE_TESTING_FORCED_LEVEL_H_
