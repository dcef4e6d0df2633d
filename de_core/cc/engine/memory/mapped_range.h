// Keeps the process alive if a mapped file is cut short. The file's lost pages then read as zeros,
// and the range knows that they are lost. Without this, the first read of such a page raises SIGBUS
// and ends the process.
#ifndef DE_CORE_ENGINE_MAPPED_RANGE_H_
#define DE_CORE_ENGINE_MAPPED_RANGE_H_

#include <array>
#include <cstddef>
#include <memory>

#include "de_core/cc/engine/base/status.h"

namespace de::engine {

/// A mapped file that is watched. Thread-safe.
class MappedRange {
 public:
  /// Watches the mapping [data, data + size), which must outlive `range`. The first call in a
  /// process installs a handler for SIGBUS. The handler passes signals for all other addresses to
  /// the handler that was there before.
  static Status Watch(const char* data, size_t size, std::unique_ptr<MappedRange>* range) noexcept;
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

  /// Returns false once the file was cut short or its end was overwritten. Call it after reading:
  /// if it returns false, the bytes that were read may be wrong.
  bool intact() const noexcept;

 private:
  struct Slot;
  friend struct MappedRanges;
  using Tail = std::array<char, 16>;

  MappedRange() = default;
  Tail ReadTail() const noexcept;

  Slot* slot_ = nullptr;
  const char* data_ = nullptr;
  size_t size_ = 0;
  /// The file's last bytes. A file that is cut short within its last page still has that page: its
  /// end reads as zeros, without a signal.
  Tail tail_{};
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_MAPPED_RANGE_H_
