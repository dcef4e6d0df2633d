// Remembers what a table's last lookups learned, for later updates of the same keys.
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

/// A lookup cannot know whether an update of the same keys will follow. So it does extra work for
/// the update only while updates use it: not before the first update, and at most twice between two
/// updates. It does so less and less often if updates have other keys, for example because several
/// lookups form one update. Thread-safe.
class LookupMemo {
 public:
  /// For a lookup: returns the object to fill and then Put, or nullptr if that is not worthwhile.
  std::unique_ptr<KnownKeys> Begin();

  void Put(std::unique_ptr<KnownKeys> known) noexcept;

  /// For an update: returns what was learned about exactly these keys, in this order, or nullptr.
  /// Give it back with Recycle.
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
  uint32_t failures_ = 0;  ///< updates since the last that found its keys, without pauses
  uint32_t pause_ = 0;     ///< number of updates to skip
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_LOOKUP_MEMO_H_
