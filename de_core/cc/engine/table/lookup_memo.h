// Remembers the KnownKeys of a table's last lookups, for later updates of the same keys.
#ifndef DE_CORE_ENGINE_LOOKUP_MEMO_H_
#define DE_CORE_ENGINE_LOOKUP_MEMO_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/table/known_keys.h"

namespace de::engine {

/// A lookup cannot know whether an update of the same keys will follow. So a lookup does extra work
/// for the update only while updates use this work: not before the first update, and at most twice
/// between two updates. If updates have other keys, for example because one update joins several
/// lookups, lookups do the extra work less and less often. Thread-safe.
class LookupMemo {
 public:
  /// For a lookup: returns an object to fill and to pass to Put, or nullptr to skip the extra work.
  std::unique_ptr<KnownKeys> Begin();

  void Put(std::unique_ptr<KnownKeys> known) noexcept;

  /// For an update: returns the object of a lookup of exactly these keys, in this order, or
  /// nullptr. Return the object with Recycle.
  std::unique_ptr<KnownKeys> Take(const Keys& keys) noexcept;

  /// Keeps the memory for the next lookup.
  void Recycle(std::unique_ptr<KnownKeys> known) noexcept;

 private:
  static constexpr uint32_t kKept = 2;  ///< number of remembered lookups between two updates
  static constexpr uint32_t kMostPause = 4096;  ///< updates

  std::atomic<bool> wanted_{false};
  std::mutex mutex_;  ///< guards the members below
  std::unique_ptr<KnownKeys> kept_[kKept];
  std::unique_ptr<KnownKeys> spare_;
  uint32_t begun_ = 0;     ///< lookups since the last update
  uint32_t failures_ = 0;  ///< updates in a row that did not find their keys, without skipped ones
  uint32_t pause_ = 0;     ///< number of updates to skip
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_LOOKUP_MEMO_H_
