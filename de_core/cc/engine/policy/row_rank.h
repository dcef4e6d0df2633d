// The eviction order of rows, and the selection of the first k rows of a stream.
#ifndef DE_CORE_ENGINE_ROW_RANK_H_
#define DE_CORE_ENGINE_ROW_RANK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "de_core/cc/engine/base/hash.h"

namespace de::engine {

/// A row's rank for eviction: the lowest is evicted first. Rows of equal rank are ordered by
/// `hash`, a hash of the key.
struct RowRank {
  uint64_t rank = 0;
  uint64_t hash = 0;

  friend bool operator<(const RowRank& a, const RowRank& b) noexcept {
    return a.rank != b.rank ? a.rank < b.rank : a.hash < b.hash;
  }
};

/// Greater than the rank of every row.
inline constexpr RowRank kAboveAll{~uint64_t{0}, ~uint64_t{0}};

/// Converts a metadata column's value to a rank: in the same order, and less than kAboveAll.rank.
inline uint64_t RankOf(int64_t value) noexcept {
  return std::min(static_cast<uint64_t>(value) ^ (uint64_t{1} << 63), ~uint64_t{0} - 1);
}

/// Returns a key's RowRank::hash. HashOfTie computes the key's Mix64 from it. That hash itself
/// determines a row's shard, so in its order the rows of the first shards would be evicted first.
inline uint64_t TieOf(uint64_t word) noexcept { return Mix64(Mix64(word)); }
inline uint64_t HashOfTie(uint64_t tie) noexcept { return UnMix64(tie); }

/// Selects the `k` lowest (or highest) of all offered ranks. Needs memory for 2 k ranks and
/// amortized constant time per offered rank.
class Selection {
 public:
  Selection(size_t k, bool highest) : k_(k), flip_(highest ? ~uint64_t{0} : 0) {}

  void Offer(RowRank row) {
    const RowRank ranked{row.rank ^ flip_, row.hash ^ flip_};
    if (k_ == 0 || (full_ && !(ranked < limit_))) return;
    rows_.push_back(ranked);
    if (rows_.size() >= 2 * k_ && rows_.size() >= kSmallest) Cut();
  }

  /// Returns the selected ranks, unordered; all offered ranks if there were at most k.
  std::vector<RowRank> Take() {
    if (rows_.size() > k_) Cut();
    for (RowRank& row : rows_) row = {row.rank ^ flip_, row.hash ^ flip_};
    return std::move(rows_);
  }

 private:
  static constexpr size_t kSmallest = 64;

  void Cut() {
    const auto last = rows_.begin() + static_cast<std::ptrdiff_t>(k_ - 1);
    std::nth_element(rows_.begin(), last, rows_.end());
    limit_ = *last;
    full_ = true;
    rows_.resize(k_);
  }

  size_t k_;
  uint64_t flip_;
  std::vector<RowRank> rows_;
  RowRank limit_;      ///< no rank from this one on is among the k lowest
  bool full_ = false;  ///< whether limit_ is valid
};

/// Says which ranks each of several tables must report, so that FirstKept can find the lowest rank
/// that is kept. The tables have `total` rows together, and the `reserved` rows of highest rank are
/// kept. A table reports its `count` highest ranks if `highest` is set, otherwise its `count`
/// lowest.
struct Candidates {
  Candidates(uint64_t total, uint64_t reserved) noexcept {
    const uint64_t victims = total > reserved ? total - reserved : 0;
    highest = victims > reserved;
    count = victims == 0 ? 0 : highest ? reserved : victims + 1;
  }

  size_t count;
  bool highest;
};

/// Returns the lowest rank to keep. `rows` are the ranks that all tables reported. The caller
/// evicts the rows of lower rank; with `keep_none`, all rows.
inline RowRank FirstKept(const Candidates& wanted, std::vector<RowRank> rows, bool keep_none) {
  if (keep_none) return kAboveAll;
  if (wanted.count == 0 || rows.size() < wanted.count) {
    return wanted.highest && !rows.empty() ? *std::min_element(rows.begin(), rows.end())
                                           : RowRank{};
  }
  const size_t at = wanted.highest ? rows.size() - wanted.count : wanted.count - 1;
  const auto place = rows.begin() + static_cast<std::ptrdiff_t>(at);
  std::nth_element(rows.begin(), place, rows.end());
  return *place;
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ROW_RANK_H_
