// Eviction: which rows leave the table, and when.
#include <algorithm>
#include <cmath>
#include <new>
#include <shared_mutex>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/index/pipeline.h"
#include "de_core/cc/engine/table/shard_update.h"
#include "de_core/cc/engine/table/table_gate.h"

namespace de::engine {
namespace {

// A full table evicts 1 / 16 of the rows that it ranks, because ranking takes most of the time.
constexpr uint64_t kEvictedPart = 16;
// Rows that are ranked at once. Enough for the order of all rows to show in a part: a smaller table
// evicts in exactly this order. Few enough to be ranked in about a millisecond.
constexpr size_t kRowsPerPart = 8192;

/// Keeps the `count` lowest ranks. Returns the lowest rank that is not kept.
RowRank KeepLowest(size_t count, std::vector<RowRank>* ranks) {
  if (count >= ranks->size()) return kAboveAll;
  const auto last = ranks->begin() + static_cast<std::ptrdiff_t>(count);
  std::nth_element(ranks->begin(), last, ranks->end());
  const RowRank kept = *last;
  ranks->resize(count);
  return kept;
}

// Calls visit(word, row number) for the rows of the index segment that contains `hash`, whose last
// byte before `end` is prefetched. Returns the last hash of the segment.
template <typename Visit>
uint64_t VisitPrefetched(const Shard& shard, uint64_t hash, size_t end, const Visit& visit) {
  std::pair<uint64_t, uint32_t> ahead[kPipelineLag];  // prefetched rows that are visited later
  size_t rows = 0;
  const auto visit_row = [&](size_t i) {
    const auto [word, row] = ahead[i % kPipelineLag];
    visit(word, row);
  };
  const uint64_t last = shard.VisitSegment(hash, [&](uint64_t word, uint32_t row) {
    PrefetchFar(shard.Row(row) + std::max<size_t>(end, 1) - 1);
    if (rows >= kPipelineLag) visit_row(rows);
    ahead[rows++ % kPipelineLag] = {word, row};
  });
  for (size_t i = rows - std::min(rows, kPipelineLag); i < rows; ++i) visit_row(i);
  return last;
}

}  // namespace

// Calls visit(word, row) for the rows from hash `first` on in the index segment that contains it,
// prefetched. Locks their shard for reading. Returns the last hash of the segment.
template <typename Visit>
uint64_t Table::VisitRows(uint64_t first, const Visit& visit) const {
  const Shard& shard = *shards_[ShardOfHash(first)];
  const std::shared_lock<ShardLock> guard(shard.lock);
  return VisitPrefetched(shard, first, policy_.end(), [&](uint64_t word, uint32_t row) {
    // A segment that grew meanwhile may begin before the cursor.
    if (Mix64(word) >= first) visit(word, shard.Row(row));
  });
}

// Erases each listed row (word, row number) of a shard if `which` is true for it. Requires
// the shard's writer lock. Returns the number of erased rows.
template <typename Which>
uint64_t Table::EraseListed(Shard& shard, const std::vector<std::pair<uint64_t, uint32_t>>& rows,
                            const Which& which) {
  const bool strings = options_.key_type == KeyType::kString;
  uint64_t erased = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kPrefetchAhead < rows.size()) {
      PrefetchFar(shard.Row(rows[i + kPrefetchAhead].second) + policy_.end());
    }
    const auto [word, row] = rows[i];
    if (!which(word, shard.Row(row))) continue;
    const std::string_view bytes = strings ? shard.KeyBytes(row) : std::string_view();
    const IndexKey key{word, Mix64(word), strings ? &bytes : nullptr};
    if (policy_.evicted_keys.enabled()) policy_.evicted_keys.Add(word, key.bytes);
    erased += shard.Erase(key);
  }
  if (policy_.options().max_bytes > 0 && !rows.empty()) {
    policy_.weights[ShardOfHash(Mix64(rows[0].first))].store(WeightOf(shard),
                                                             std::memory_order_relaxed);
  }
  return erased;
}

// Erases the rows that `which` selects in the index segment that contains *hash. Sets *hash to the
// last hash of the segment. Returns the number of erased rows.
template <typename Which>
uint64_t Table::EraseSegment(uint64_t* hash, const Which& which) {
  Shard& shard = *shards_[ShardOfHash(*hash)];
  std::vector<std::pair<uint64_t, uint32_t>> rows;
  // Lock one segment at a time, so that other verbs can run in between.
  const std::lock_guard<ShardLock> guard(shard.lock);
  *hash = VisitPrefetched(shard, *hash, policy_.end(), [&](uint64_t word, uint32_t row) {
    if (which(word, shard.Row(row))) rows.emplace_back(word, row);
  });
  return EraseListed(shard, rows, [](uint64_t, const char*) { return true; });
}

template <typename Which>
uint64_t Table::EraseRows(const Which& which) {
  uint64_t erased = 0;
  for (uint64_t hash = 0;; ++hash) {
    erased += EraseSegment(&hash, which);
    if (hash == ~uint64_t{0}) return erased;
  }
}

Status Table::EraseIf(const std::function<bool(uint64_t, const char*)>& predicate,
                      uint64_t* erased) {
  return Guarded([&] {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    const uint64_t count = EraseRows(predicate);
    if (erased != nullptr) *erased = count;
    return Status::Ok();
  });
}

// Calls visit(shard, rows) for parts of the ranked rows, each (word, row number), ascending by hash
// between the parts. Locks the shard meanwhile: Lock is a lock of writers or of readers.
template <typename Lock, typename Visit>
void Table::VisitRanked(const std::vector<RowRank>& ranked, const Visit& visit) const {
  std::vector<uint64_t> hashes;
  hashes.reserve(ranked.size());
  for (const RowRank& row : ranked) hashes.push_back(HashOfTie(row.hash));
  // Sorts by shard, and within a shard in the order of the index.
  std::sort(hashes.begin(), hashes.end());
  // Remove duplicates: VisitWord below visits all string keys of one word.
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  std::vector<std::pair<uint64_t, uint32_t>> rows;
  rows.reserve(std::min(hashes.size(), kKeysPerLock));
  for (size_t begin = 0; begin < hashes.size();) {
    Shard& shard = *shards_[ShardOfHash(hashes[begin])];
    const auto behind = std::upper_bound(hashes.begin() + static_cast<std::ptrdiff_t>(begin),
                                         hashes.end(), LastHashOf(ShardOfHash(hashes[begin])));
    const size_t end = std::min(begin + kKeysPerLock, static_cast<size_t>(behind - hashes.begin()));
    const Lock guard(shard.lock);
    rows.clear();
    for (size_t i = begin; i < end; ++i) {
      if (i + kPrefetchAhead < end) shard.PrefetchLine(hashes[i + kPrefetchAhead]);
      const uint64_t word = UnMix64(hashes[i]);
      // A visitor must not throw. If string keys share a word, there may be too little space.
      const size_t before = rows.size();
      size_t count = 0;
      const auto add = [&](uint32_t row) {
        if (rows.size() < rows.capacity()) rows.emplace_back(word, row);
        ++count;
      };
      shard.VisitWord(word, hashes[i], add);
      if (rows.size() == before + count) continue;
      rows.resize(before);
      rows.reserve(before + count + end - i);
      shard.VisitWord(word, hashes[i], add);
    }
    visit(shard, rows);
    begin = end;
  }
}

Status Table::CheckColumn(RowColumn column) const {
  if (column != RowColumn::kNone && policy_.offset(column) != 0) return Status::Ok();
  return Status::FailedPrecondition(
      "the table must have the column: create it with a policy that keeps the column. Received: "
      "column='" +
      std::string(NameOf(column)) + "'");
}

Status Table::RankCandidates(RowColumn by, const Candidates& wanted,
                             std::vector<RowRank>* rows) const {
  return Guarded([&]() -> Status {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    DE_RETURN_IF_ERROR(CheckColumn(by));
    Selection selection(wanted.count, wanted.highest);
    for (uint64_t hash = 0; wanted.count > 0; ++hash) {
      hash = VisitRows(hash, [&](uint64_t word, const char* row) {
        selection.Offer({RankOf(policy_.ReadShared(row, by)), TieOf(word)});
      });
      if (hash == ~uint64_t{0}) break;
    }
    *rows = selection.Take();
    return Status::Ok();
  });
}

Status Table::EvictBelow(RowColumn by, const RowRank& kept, uint64_t* evicted) {
  return Guarded([&]() -> Status {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    DE_RETURN_IF_ERROR(CheckColumn(by));
    *evicted = 0;
    if (!(RowRank{} < kept)) return Status::Ok();
    *evicted = EraseRows([&](uint64_t word, const char* row) {
      return RowRank{RankOf(policy_.Read(row, by)), TieOf(word)} < kept;
    });
    policy_.CountEvicted(*evicted);
    return Status::Ok();
  });
}

Status Table::EvictExpired(uint64_t* evicted) {
  const Stamp now = policy_.Now();
  *evicted = 0;
  if (!policy_.expires()) return Status::Ok();
  const Status status =
      EraseIf([&](uint64_t, const char* row) { return policy_.Expired(row, now); }, evicted);
  policy_.CountExpired(*evicted);
  return status;
}

uint64_t Table::RowsTooMany() const noexcept {
  const RowPolicyOptions& bounds = policy_.options();
  uint64_t rows = 0, bytes = 0;
  for (const auto& shard : shards_) rows += shard->size();
  for (const auto& weight : policy_.weights) bytes += weight.load(std::memory_order_relaxed);
  const auto surplus = [](uint64_t had, uint64_t bound) {
    return had > bound ? had - (bound - bound / kEvictedPart) : 0;
  };
  uint64_t too_many = bounds.max_rows > 0 ? surplus(rows, bounds.max_rows) : 0;
  if (bounds.max_bytes > 0 && rows > 0) {
    // Erased rows do not shrink the index, so convert the surplus into rows by the bytes of a row
    // without index.
    uint64_t index = 0;
    if (bytes > bounds.max_bytes) {
      for (const auto& shard : shards_) {
        const std::shared_lock<ShardLock> guard(shard->lock);
        index += shard->index_bytes();
      }
      const uint64_t a_row = std::max<uint64_t>(1, (bytes - std::min(bytes, index)) / rows);
      too_many = std::max(too_many, surplus(bytes, bounds.max_bytes) / a_row + 1);
    }
  }
  return std::min(too_many, rows);
}

// Evicts rows of the lowest ranks from the next part of the table: of `too_many` rows as large a
// part as this part is of the table. Expired rows rank lowest. The parts follow one another in the
// order of the hashes, so that each has the same turn. Takes the same time however many rows the
// table has. Sets *begin to the hash where the next part begins.
void Table::EvictFromPart(uint64_t too_many, uint64_t* begin) {
  const RowColumn by = policy_.options().evict_by;
  const Stamp now = policy_.Now();
  const auto rank_of = [&](uint64_t word, const char* row) {
    const bool expired = policy_.Expired(row, now);
    return RowRank{expired ? 0 : RankOf(policy_.ReadShared(row, by)), TieOf(word)};
  };
  std::vector<RowRank> ranks;
  ranks.reserve(2 * kRowsPerPart);
  const auto add = [&](uint64_t word, const char* row) { ranks.push_back(rank_of(word, row)); };
  const uint64_t start = *begin;
  for (bool wrapped = false; ranks.size() < kRowsPerPart && !(wrapped && *begin >= start);) {
    *begin = VisitRows(*begin, add) + 1;
    wrapped = wrapped || *begin == 0;
  }
  uint64_t rows = 0;
  for (const auto& shard : shards_) rows += shard->size();
  const auto part =
      static_cast<double>(ranks.size()) / static_cast<double>(std::max<uint64_t>(rows, 1));
  const auto victims = static_cast<size_t>(std::ceil(static_cast<double>(too_many) * part));
  const RowRank kept = KeepLowest(victims, &ranks);
  VisitRanked<std::lock_guard<ShardLock>>(ranks, [&](Shard& shard, const auto& listed) {
    // Rank a row again before it is erased: a row that was used since may stay.
    policy_.CountEvicted(EraseListed(
        shard, listed, [&](uint64_t word, const char* row) { return rank_of(word, row) < kept; }));
  });
}

Status Table::CopyCool(RowColumn by, size_t most, double part, ClockHand* at,
                       RowBatch* batch) const {
  return Guarded([&]() -> Status {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    DE_RETURN_IF_ERROR(CheckColumn(by));
    std::vector<RowRank> ranks;
    while (ranks.size() < kRowsPerPart && !at->ended.all()) {
      const uint32_t shard = at->shard;
      at->shard = (shard + 1) % kShards;
      if (at->ended[shard]) continue;
      const uint64_t begin = std::max(at->next[shard], FirstHashOf(shard));
      at->next[shard] =
          VisitRows(begin,
                    [&](uint64_t word, const char* row) {
                      ranks.push_back({RankOf(policy_.ReadShared(row, by)), TieOf(word)});
                    }) +
          1;
      if (ShardOfHash(at->next[shard]) != shard) {
        at->next[shard] = 0;
        at->ended[shard] = true;
      }
    }
    const auto cool = static_cast<size_t>(std::ceil(static_cast<double>(ranks.size()) * part));
    KeepLowest(std::min(most, cool), &ranks);
    batch->Clear();
    VisitRanked<std::shared_lock<ShardLock>>(ranks, [&](const Shard& shard, const auto& rows) {
      for (const auto& [word, row] : rows) CopyTo(word, shard.Row(row), nullptr, batch);
    });
    batch->Finish(layout_);
    return Status::Ok();
  });
}

// Rebuilds the indexes that are far larger than their rows need. Weighs all shards anew.
void Table::ShrinkIndexes() {
  for (size_t i = 0; i < kShards; ++i) {
    const std::lock_guard<ShardLock> guard(shards_[i]->lock);
    try {
      if (shards_[i]->has_spare_index()) shards_[i]->Rebuild(0, /*compact=*/false);
    } catch (const std::bad_alloc&) {
      // Evicting rows makes room too.
    }
    policy_.weights[i].store(WeightOf(*shards_[i]), std::memory_order_relaxed);
  }
}

// Evicts rows until the table is within its bounds.
void Table::MakeRoom() {
  if (RowsTooMany() == 0) return;
  const std::lock_guard<std::mutex> one_at_a_time(policy_.evicting);
  if (RowsTooMany() == 0) return;  // another thread has made room
  if (policy_.options().max_bytes > 0) ShrinkIndexes();
  // Two rounds through the table suffice, unless other verbs use its rows faster.
  for (int rounds = 0; rounds < 3;) {
    const uint64_t too_many = RowsTooMany();
    if (too_many == 0) return;
    const uint64_t begin = policy_.evict_hash;
    EvictFromPart(too_many, &policy_.evict_hash);
    rounds += policy_.evict_hash <= begin;
  }
}

// Erases some expired rows: while a table writes twice as many rows as it has, the search visits
// all its rows once. It visits whole index segments, and deducts the rows beyond `rows` from the
// next search.
void Table::SweepExpired(uint64_t rows) {
  auto& credit = policy_.sweep_credit;
  if (credit.fetch_add(static_cast<int64_t>(rows), std::memory_order_relaxed) < 0) return;
  const std::unique_lock<std::mutex> one_at_a_time(policy_.evicting, std::try_to_lock);
  if (!one_at_a_time.owns_lock()) return;
  const Stamp now = policy_.Now();
  uint64_t evicted = 0;
  for (int rounds = 0; rounds < 2 && credit.load(std::memory_order_relaxed) > 0;) {
    uint64_t hash = policy_.sweep_hash.load(std::memory_order_relaxed);
    int64_t visited = 1;
    evicted += EraseSegment(&hash, [&](uint64_t, const char* row) {
      ++visited;
      return policy_.Expired(row, now);
    });
    policy_.sweep_hash.store(hash + 1, std::memory_order_relaxed);
    rounds += hash == ~uint64_t{0};
    credit.fetch_sub(visited, std::memory_order_relaxed);
  }
  policy_.CountExpired(evicted);
}

void Table::AfterWrite(size_t keys) {
  if (policy_.bounded()) MakeRoom();
  if (policy_.expires()) SweepExpired(keys / 2);
}

}  // namespace de::engine
