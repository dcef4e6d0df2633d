// Which keys get a row: those that came often enough, or by chance.
//
// A filter belongs to one internal shard and is used under that shard's lock. String keys are
// counted by their 64-bit word.
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
  uint64_t min_count = 1;  ///< of kCount and kBloom: the occurrence that gets the row
  uint64_t capacity = 0;   ///< of kBloom: distinct keys for which `error` holds
  double error = 0.01;     ///< of kBloom: how many keys may be admitted early
  double probability = 1;  ///< of kProbability, a key and step
  uint64_t seed = 0;       ///< of kProbability

  Status Check() const;
};

class AdmissionFilter {
 public:
  /// A filter for one of `shards` parts of the keys.
  AdmissionFilter(const AdmissionOptions& options, uint32_t shards);

  /// Counts one occurrence of a key without a row; true if it gets one now.
  bool Admit(uint64_t word, uint64_t hash, int64_t step);

  /// Forgets all counts.
  void Clear();

  /// Keys that were counted and not admitted; 0 unless counts are exact.
  uint64_t pending() const noexcept { return pending_; }
  size_t bytes() const noexcept;

  /// Appends the counts, as Merge reads them.
  void Save(std::string* out) const;

  /// Takes over counts that Save wrote; of two counts of a key the higher holds, for the true one
  /// is in one filter alone. Exact counts are taken of the keys of one shard of several
  /// (ShardOfKey). A Bloom filter of another size is kept beside this one and asked too; then the
  /// errors of both add up. A filter of another kind is left out: `merged` is false.
  Status Merge(std::string_view part, uint32_t shard_index, uint32_t shard_count, bool* merged);

 private:
  bool CountExactly(uint64_t word, uint64_t hash);
  bool CountInBloom(uint64_t hash);
  void TakeBloom(std::string_view counters);
  size_t Slot(uint64_t word, uint64_t hash) const noexcept;
  void Grow();
  void Remove(size_t at) noexcept;
  AdmissionOptions options_;
  std::vector<uint64_t> words_;              // (places) exact: open addressing, linear probing
  std::vector<uint32_t> counts_;             // (places) exact: 0 is a free place
  std::vector<uint8_t> bloom_;               // counters
  std::vector<std::vector<uint8_t>> older_;  ///< Bloom filters of other sizes that were merged
  uint64_t pending_ = 0;
  uint64_t chance_ = 0;  ///< of kProbability: admitted if the random word is below it
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ADMISSION_H_
