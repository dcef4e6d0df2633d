// What a table's last lookups learnt, kept for the updates of the same keys that follow them.
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

/// Whether an update will follow, and of the same keys, a lookup cannot know. It does what the
/// update would have to do only while updates use it: not before the first update, at most twice
/// between two updates, and less and less often where they come with other keys, because several
/// lookups make one update, for example. Thread-safe.
class LookupMemo {
 public:
  /// For a lookup: what it is to fill and to Put back, or nullptr if that is not worth it.
  std::unique_ptr<KnownKeys> Begin();

  void Put(std::unique_ptr<KnownKeys> known) noexcept;

  /// For an update: what was learnt of exactly these keys, in this order, or nullptr. To be given
  /// back by Recycle.
  std::unique_ptr<KnownKeys> Take(const Keys& keys) noexcept;

  /// Keeps the memory for the next lookup.
  void Recycle(std::unique_ptr<KnownKeys> known) noexcept;

 private:
  static constexpr uint32_t kKept = 2;          ///< lookups between two updates that are remembered
  static constexpr uint32_t kMostPause = 4096;  ///< updates

  std::atomic<bool> wanted_{false};
  std::mutex mutex_;  ///< guards what follows
  std::unique_ptr<KnownKeys> kept_[kKept];
  std::unique_ptr<KnownKeys> spare_;
  uint32_t begun_ = 0;     ///< lookups since the last update
  uint32_t failures_ = 0;  ///< updates since the last one that found its keys, pauses left out
  uint32_t pause_ = 0;     ///< updates to wait for
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_LOOKUP_MEMO_H_
