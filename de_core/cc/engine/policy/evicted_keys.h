// The keys of rows that a policy removed, for an index beside the table.
#ifndef DE_CORE_ENGINE_EVICTED_KEYS_H_
#define DE_CORE_ENGINE_EVICTED_KEYS_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace de::engine {

/// A bounded list of evicted keys, off until the first Take. Thread-safe. Its mutex is taken last.
class EvictedKeys {
 public:
  struct List {
    std::vector<int64_t> ints;         ///< the keys of a table with integer keys, oldest first
    std::vector<std::string> strings;  ///< the keys of a table with string keys, oldest first
    uint64_t lost = 0;                 ///< number of later keys, for which there was no room
    size_t size() const noexcept { return ints.size() + strings.size(); }
  };

  bool enabled() const noexcept { return capacity_.load(std::memory_order_relaxed) > 0; }

  /// Adds the key `*bytes`, or the integer key `word` if `bytes` is nullptr.
  void Add(uint64_t word, const std::string_view* bytes) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (capacity_ == 0) return;
    try {
      if (list_.size() >= capacity_) {
        ++list_.lost;
      } else if (bytes == nullptr) {
        list_.ints.push_back(static_cast<int64_t>(word));
      } else {
        list_.strings.emplace_back(*bytes);
      }
    } catch (const std::bad_alloc&) {
      ++list_.lost;
    }
  }

  /// Returns the list and empties it. From now on it has room for `capacity` keys; 0 turns it off.
  List Take(uint64_t capacity) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    capacity_ = capacity;
    return std::exchange(list_, List());
  }

 private:
  std::mutex mutex_;
  std::atomic<uint64_t> capacity_{0};  ///< written under the mutex
  List list_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_EVICTED_KEYS_H_
