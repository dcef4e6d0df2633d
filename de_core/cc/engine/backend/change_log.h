// Records which rows of a table change, for deltas.
#ifndef DE_CORE_ENGINE_CHANGE_LOG_H_
#define DE_CORE_ENGINE_CHANGE_LOG_H_

#include <cstdint>
#include <vector>

#include "de_core/cc/engine/base/status.h"

namespace de::engine {

/// A table implements this interface. SaveChains calls it, one call at a time.
class ChangeLog {
 public:
  virtual ~ChangeLog() = default;

  /// Records changes from now on, as changes of `generation`. Changes of earlier generations stay
  /// recorded. Numbers of generations ascend.
  virtual Status Begin(uint64_t generation) = 0;

  /// Discards changes that no delta since one of the generations `marks` (ascending) needs. If
  /// there are no marks, records no changes any more.
  virtual void Keep(const std::vector<uint64_t>& marks) = 0;

  /// Memory of the recorded changes in bytes. Any thread may call it.
  virtual uint64_t bytes() const = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_CHANGE_LOG_H_
