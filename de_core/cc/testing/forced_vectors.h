// One of the ways to find rows, whatever the processor has.
#ifndef DE_CORE_TESTING_FORCED_VECTORS_H_
#define DE_CORE_TESTING_FORCED_VECTORS_H_

#include "de_core/cc/engine/wide_vectors.h"

namespace de::engine {

/// Forbids AVX-512 while it lives, or allows it where there is one.
class ForcedVectors {
 public:
  explicit ForcedVectors(bool widest) noexcept { HasWidestVectors() = widest && has_widest_; }
  ~ForcedVectors() { HasWidestVectors() = has_widest_; }
  ForcedVectors(const ForcedVectors&) = delete;
  ForcedVectors& operator=(const ForcedVectors&) = delete;

  /// Whether it is as was asked for.
  bool is(bool widest) const noexcept { return HasWidestVectors() == widest; }

 private:
  const bool has_widest_ = HasWidestVectors();
};

}  // namespace de::engine

#endif  // DE_CORE_TESTING_FORCED_VECTORS_H_
