// Decides which keys get a row: by the number of their occurrences, or by chance.
//
// Each internal shard has a filter, used under the shard's lock. String keys are counted by their
// 64-bit word.
#ifndef DE_CORE_ENGINE_ADMISSION_H_
#define DE_CORE_ENGINE_ADMISSION_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/status.h"

namespace de::engine {

struct AdmissionOptions {
  enum class Kind : uint8_t { kAll = 0, kCount = 1, kBloom = 2, kProbability = 3 };

  Kind kind = Kind::kAll;
  uint64_t min_count = 1;  ///< kCount, kBloom: number of occurrences after which a key has a row
  uint64_t capacity = 0;   ///< kBloom: number of distinct keys for which `error` holds
  double error = 0.01;     ///< kBloom: fraction of keys that may be admitted early
  double probability = 1;  ///< kProbability: probability per key and step
  uint64_t seed = 0;       ///< kProbability: seed

  Status Check() const;
};

class AdmissionFilter {
 public:
  /// Creates the filter of one of a table's `shards` shards, each with about the same number of
  /// keys.
  AdmissionFilter(const AdmissionOptions& options, uint32_t shards);

  /// Counts one occurrence of a key without a row. Returns true if the key gets a row now.
  bool Admit(uint64_t word, uint64_t hash, int64_t step);

  /// Drops the exact count of a key. Bloom counters cannot be dropped: other keys share them.
  void Forget(uint64_t word, uint64_t hash) noexcept;

  /// Resets all counts.
  void Clear();

  /// Number of keys counted but not admitted; 0 unless counts are exact.
  uint64_t pending() const noexcept { return pending_; }
  size_t bytes() const noexcept;

  /// Appends the counts in the format that Merge reads.
  void Save(std::string* out) const;

  /// Merges counts that Save wrote. If both filters count a key, keeps the higher count, not the
  /// sum, because only one filter has the true count. Merges exact counts only for the keys that
  /// ShardOfKey assigns to `shard_index` of `shard_count`. Keeps a Bloom filter of another size
  /// beside this filter and checks both; then their errors add up. Ignores a filter of another
  /// kind.
  Status Merge(std::string_view part, uint32_t shard_index, uint32_t shard_count);

 private:
  bool CountExactly(uint64_t word, uint64_t hash);
  bool CountInBloom(uint64_t hash);
  void TakeBloom(std::string_view counters);
  size_t Slot(uint64_t word, uint64_t hash) const noexcept;
  void Grow();
  void Remove(size_t at) noexcept;
  AdmissionOptions options_;
  std::vector<uint64_t> words_;   // (places) kCount: the counted keys, linear probing
  std::vector<uint32_t> counts_;  // (places) kCount: count per place; 0: the place is free
  std::vector<uint8_t> bloom_;    // kBloom: counters
  std::vector<std::vector<uint8_t>> older_;  ///< Bloom filters of other sizes that were merged
  uint64_t pending_ = 0;
  uint64_t chance_ = 0;  ///< kProbability: a key is admitted if its random word is less
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ADMISSION_H_
