// Rows of one shard as they were when a consistent save began (copy on write per row). A row is
// copied before its first change during the save, unless the save has already written it.
#ifndef DE_CORE_ENGINE_BEFORE_IMAGES_H_
#define DE_CORE_ENGINE_BEFORE_IMAGES_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/rows/before_image_memory.h"
#include "de_core/cc/engine/rows/row_layout.h"

namespace de::engine {

/// The memory for the row copies of one save, and its limit. All shards share it.
struct HeldBudget {
  HeldBudget(const RowLayout& layout, uint64_t bytes);

  const uint64_t limit;            ///< greatest number of bytes for copies
  std::atomic<uint64_t> bytes{0};  ///< bytes in use by copies
  std::atomic<uint64_t> peak{0};   ///< greatest value of `bytes` so far
  BeforeImageMemory memory;
  // Writers read the members below for each row, so keep them on another cache line than `bytes`,
  // which changes often.
  alignas(64) std::atomic<bool> exceeded{false};  ///< there was no room for a copy: the save fails
  /// The table was cleared or its row layout changed: the save fails.
  std::atomic<bool> replaced{false};
  /// The save has read all rows whose hashes are lower. They need no copies.
  std::atomic<uint64_t> collected{0};

  bool lost() const noexcept { return exceeded || replaced; }
};

/// Not thread-safe. Requires the shard's lock.
class BeforeImages {
 public:
  /// `rows` is the approximate number of rows in the shard.
  BeforeImages(const RowLayout& layout, uint64_t rows, HeldBudget* budget);
  ~BeforeImages();
  BeforeImages(const BeforeImages&) = delete;
  BeforeImages& operator=(const BeforeImages&) = delete;

  /// Bytes of a copy without its strings.
  static size_t BytesACopy(const RowLayout& layout) noexcept;

  /// Call before a row changes or is erased.
  void BeforeChange(uint64_t word, uint64_t hash, uint32_t number, const char* row) noexcept {
    if (IsTouched(number) || hash < budget_->collected.load(std::memory_order_relaxed)) return;
    Keep(word, hash, number, row);
  }

  /// Prefetches the memory that BeforeChange reads.
  void Prefetch(uint32_t number) const noexcept {
    if (number / 64 < touched_.size()) PrefetchFar(&touched_[number / 64]);
  }

  /// Records an inserted row, which the save must not see.
  void Inserted(uint32_t number) noexcept;

  void Cleared() noexcept { budget_->replaced = true; }
  void Renumber(const std::vector<std::pair<uint32_t, uint32_t>>& moves) noexcept;

  /// True if the row has changed since the save began.
  bool IsTouched(uint32_t number) const noexcept {
    return number / 64 < touched_.size() && (touched_[number / 64] >> (number % 64) & 1) != 0;
  }

  /// Calls visit(word, row, texts) for the copies with hashes in [begin, last]. `texts` are the
  /// row's string key and string values, as far as it has them; nullptr if none.
  template <typename Visit>
  void ForEach(uint64_t begin, uint64_t last, const Visit& visit) const {
    for (size_t at = BucketOf(begin); at <= BucketOf(last); ++at) {
      for (uint32_t i = newest_[at]; i != kNone;) {
        const char* const place = PlaceOf(i);
        const Copy copy = CopyAt(place);
        const uint64_t hash = Mix64(copy.word);
        if (hash >= begin && hash <= last) visit(copy.word, place + sizeof(Copy), copy.texts);
        i = copy.before;
      }
    }
  }

 private:
  /// The header of a copy. The row follows it.
  struct Copy {
    uint64_t word;
    std::string* texts;  ///< the key and values if they are strings, otherwise nullptr
    uint32_t before;     ///< number of the next older copy in the same bucket, or kNone
    uint32_t unused;
  };

  static constexpr uint32_t kBucketBits = 10;
  /// Number of leading hash bits, which are equal for all rows of a shard.
  static constexpr uint32_t kBitsOfShard = 4;
  static constexpr uint32_t kNone = 0xffffffffU;

  /// `hash` must belong to this shard.
  static size_t BucketOf(uint64_t hash) noexcept {
    return static_cast<size_t>((hash << kBitsOfShard) >> (64 - kBucketBits));
  }
  char* PlaceOf(uint32_t copy) const noexcept {
    return chunks_[copy >> chunk_bits_] + (copy & ((1U << chunk_bits_) - 1)) * bytes_a_copy_;
  }
  static Copy CopyAt(const char* place) noexcept {
    Copy copy;
    std::memcpy(&copy, place, sizeof(copy));
    return copy;
  }
  std::string* TextsOf(const char* row) const;
  size_t TextsARow() const noexcept;
  void Keep(uint64_t word, uint64_t hash, uint32_t number, const char* row) noexcept;
  char* Place();
  void Charge(uint64_t bytes) noexcept;
  void Touch(uint32_t number);

  RowLayout layout_;
  HeldBudget* budget_;
  const size_t bytes_a_copy_;
  const uint32_t chunk_bits_;      ///< base-2 logarithm of the number of copies in a chunk
  std::vector<uint64_t> touched_;  ///< one bit per row number
  std::array<uint32_t, size_t{1} << kBucketBits> newest_;  ///< newest copy in each bucket, or kNone
  std::vector<char*> chunks_;  ///< memory from the budget's BeforeImageMemory
  uint32_t count_ = 0;         ///< number of copies
  uint64_t charged_ = 0;       ///< bytes charged to the budget
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_BEFORE_IMAGES_H_
