// Rows of one shard as they were when a consistent save began: copied before their first change
// after that, until the save has written them. Copy on write, a row at a time.
#ifndef DE_CORE_ENGINE_HELD_ROWS_H_
#define DE_CORE_ENGINE_HELD_ROWS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "de_core/cc/engine/hash.h"
#include "de_core/cc/engine/prefetch.h"
#include "de_core/cc/engine/row_layout.h"

namespace de::engine {

/// What all shards of one save share.
struct HeldBudget {
  explicit HeldBudget(uint64_t bytes) : limit(bytes) {}

  const uint64_t limit;            ///< bytes that copies may take
  std::atomic<uint64_t> bytes{0};  ///< that they take now
  std::atomic<uint64_t> peak{0};
  std::atomic<bool> exceeded{false};  ///< a copy found no room: the moment is lost
  std::atomic<bool> replaced{false};  ///< the table was cleared or laid out anew: it is lost too
  std::atomic<uint64_t> collected{
      0};  ///< rows of hashes below it are collected, and need no copies

  bool lost() const noexcept { return exceeded || replaced; }
};

/// Not thread-safe: the shard's lock guards it.
class HeldRows {
  struct Bucket {
    std::vector<uint64_t> words;
    std::vector<char> rows;          // (words, stride)
    std::vector<std::string> texts;  // (words, TextsARow())
    uint64_t bytes = 0;
  };

 public:
  HeldRows(const RowLayout& layout, HeldBudget* budget) : layout_(layout), budget_(budget) {}
  ~HeldRows();

  /// A row is about to change or to be erased.
  void BeforeChange(uint64_t word, uint64_t hash, uint32_t number, const char* row) noexcept {
    if (IsTouched(number) || hash < budget_->collected.load(std::memory_order_relaxed)) return;
    Keep(word, hash, number, row);
  }

  /// Asks for what BeforeChange reads.
  void Prefetch(uint32_t number) const noexcept {
    if (number / 64 < touched_.size()) PrefetchFar(&touched_[number / 64]);
  }

  /// A row was inserted, which the save must not see.
  void Inserted(uint32_t number) noexcept;

  void Cleared() noexcept { budget_->replaced = true; }
  void Renumber(const std::vector<std::pair<uint32_t, uint32_t>>& moves) noexcept;

  /// Whether the row is not what it was when the save began.
  bool IsTouched(uint32_t number) const noexcept {
    return number / 64 < touched_.size() && (touched_[number / 64] >> (number % 64) & 1) != 0;
  }

  /// Calls visit(word, row, texts) for the copies whose hashes lie in [begin, last]; `texts` are
  /// the key and the values of a row of strings, else nullptr.
  template <typename Visit>
  void ForEach(uint64_t begin, uint64_t last, const Visit& visit) const {
    for (size_t at = BucketOf(begin); at <= BucketOf(last); ++at) {
      const Bucket& bucket = buckets_[at];
      for (size_t i = 0; i < bucket.words.size(); ++i) {
        const uint64_t hash = Mix64(bucket.words[i]);
        if (hash < begin || hash > last) continue;
        visit(bucket.words[i], bucket.rows.data() + i * layout_.stride(),
              bucket.texts.empty() ? nullptr : bucket.texts.data() + i * TextsARow());
      }
    }
  }

  /// Memory on its way back to the system, for which no writer needs to wait.
  using Freed = std::vector<Bucket>;

  /// Moves copies of rows below a hash of this shard to `freed`.
  void Free(uint64_t below, Freed* freed) noexcept;

 private:
  static constexpr uint32_t kBucketBits = 10;
  static constexpr uint32_t kBitsOfShard = 4;  ///< leading bits of a hash that all rows here share

  /// `hash` is of this shard.
  static size_t BucketOf(uint64_t hash) noexcept {
    return static_cast<size_t>((hash << kBitsOfShard) >> (64 - kBucketBits));
  }
  size_t TextsARow() const noexcept {
    return (layout_.key_type() == KeyType::kString ? 1 : 0) +
           (layout_.value_dtype() == DType::kString ? layout_.dim() : 0);
  }
  void Keep(uint64_t word, uint64_t hash, uint32_t number, const char* row) noexcept;
  bool Touch(uint32_t number);

  RowLayout layout_;
  HeldBudget* budget_;
  std::vector<uint64_t> touched_;  ///< a bit a row number
  std::array<Bucket, size_t{1} << kBucketBits> buckets_;
  size_t freed_ = 0;  ///< buckets that rows no longer come to
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_HELD_ROWS_H_
