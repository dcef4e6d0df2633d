// The order in which rows are given up, and the choice of the first k of a stream of rows.
#ifndef DE_CORE_ENGINE_ROW_RANK_H_
#define DE_CORE_ENGINE_ROW_RANK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace de::engine {

/// A row's place in the order of eviction: the lowest goes first; rows of one rank by key hash.
struct RowRank {
  uint64_t rank = 0;
  uint64_t hash = 0;

  friend bool operator<(const RowRank& a, const RowRank& b) noexcept {
    return a.rank != b.rank ? a.rank < b.rank : a.hash < b.hash;
  }
};

/// Above every row: the rank of no column value.
inline constexpr RowRank kAboveAll{~uint64_t{0}, ~uint64_t{0}};

/// A metadata column's value as a rank: the same order, without the largest rank.
inline uint64_t RankOf(int64_t value) noexcept {
  return std::min(static_cast<uint64_t>(value) ^ (uint64_t{1} << 63), ~uint64_t{0} - 1);
}

/// Keeps the `k` lowest (or highest) of all ranks offered, in memory for 2 k of them and amortised
/// constant time a rank.
class Selection {
 public:
  Selection(size_t k, bool highest) : k_(k), flip_(highest ? ~uint64_t{0} : 0) {}

  void Offer(RowRank row) {
    const RowRank ranked{row.rank ^ flip_, row.hash ^ flip_};
    if (k_ == 0 || (full_ && !(ranked < limit_))) return;
    rows_.push_back(ranked);
    if (rows_.size() >= 2 * k_ && rows_.size() >= kSmallest) Cut();
  }

  /// The chosen ones, in no particular order; all that were offered if those were at most k.
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
  RowRank limit_;      ///< no rank from here on is among the k lowest
  bool full_ = false;  ///< whether limit_ holds
};

/// How many ranks each of several tables must give, and which, so that FirstKept can tell what
/// `reserved` of `total` rows keeps.
struct Candidates {
  Candidates(uint64_t total, uint64_t reserved) noexcept {
    const uint64_t victims = total > reserved ? total - reserved : 0;
    highest = victims > reserved;
    count = victims == 0 ? 0 : highest ? reserved : victims + 1;
  }

  size_t count;
  bool highest;
};

/// The lowest row that is kept, given the candidates of all tables; rows below it go.
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
