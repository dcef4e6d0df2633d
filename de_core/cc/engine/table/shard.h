// One shard of a table: its rows, their strings, and an index from keys to row numbers.
//
// The index is a directory of segments (extendible hashing: R. Fagin et al., 1979). The first hash
// bits select the shard, the next bits select a directory entry (a `Place`), so segments are
// ordered by hash. A full segment grows or splits in two: a bounded step, however large the table
// is. No function here locks; the table takes `lock`.
#ifndef DE_CORE_ENGINE_SHARD_H_
#define DE_CORE_ENGINE_SHARD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/base/shard_number.h"
#include "de_core/cc/engine/index/line_index.h"
#include "de_core/cc/engine/memory/arena.h"
#include "de_core/cc/engine/memory/slab.h"
#include "de_core/cc/engine/memory/string_arena.h"
#include "de_core/cc/engine/rows/change_observer.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/table/shard_lock.h"

namespace de::engine {

/// The location of the index lines for a range of hashes.
struct LinePlace {
  IndexLine* lines;
  uint32_t size;     ///< number of lines
  uint32_t segment;  ///< number of the shard's segment that owns the lines
};

/// The data of a shard that a reader needs while it holds the shard's lock. `hash >> shift` is an
/// index into the shard's directory, with the shard's number in the bits above. `directory` is the
/// directory's address minus the offset that the shard's number adds, so that HomeLine need not
/// remove these bits.
struct ShardReader {
  uintptr_t directory;
  uint32_t shift;
  char* const* extents;
  uint64_t seed;  ///< of SeededHash

  const IndexLine* HomeLine(uint64_t hash) const noexcept {
    const LinePlace& place =
        *reinterpret_cast<const LinePlace*>(directory + (hash >> shift) * sizeof(LinePlace));
    return place.lines + ReduceLow32(SeededHash(hash, seed), place.size);
  }
};

class Shard {
 public:
  using Place = LinePlace;
  using Reader = ShardReader;

  /// A segment with this many lines is split in two instead of grown, so that one step takes
  /// bounded time. Both halves have as many lines as the whole had, and are 40 % full, so that
  /// other splits reuse the memory of the whole: random keys fill all segments of a shard at the
  /// same time.
  static constexpr uint32_t kSegmentLines = 1024;
  /// Bytes of a rebuilt index per row: half of its entries are used.
  static constexpr size_t kIndexBytesPerRow = 2 * sizeof(IndexLine) / kEntriesPerLine + 1;

  /// `arena` must outlive the shard. `seed` places the keys in the index (SeededHash).
  Shard(const RowLayout& layout, Arena* arena, uint64_t seed,
        uint32_t segment_lines = kSegmentLines);
  ~Shard() { FreeIndex(); }
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  /// Returns the pointers that a lookup needs. `shard` is this shard's number in the table.
  Reader reader(uint32_t shard) const noexcept {
    const uint32_t depth = 63 - shift_;
    const uintptr_t before = (uintptr_t{shard} << depth) * sizeof(Place);
    return {reinterpret_cast<uintptr_t>(directory_.data()) - before, 64 - kShardBits - depth,
            slab_.map().extents, seed_};
  }

  /// Prefetches the home line of `hash`: the index line in which a search starts.
  void PrefetchLine(uint64_t hash) const noexcept {
    const Place& place = PlaceOf(hash);
    PrefetchFar(place.lines + ReduceLow32(SeededHash(hash, seed_), place.size));
  }

  /// For a key that is not in its home line. Returns true if the key may be in a later line, or if
  /// the home line is full, so that the key will be inserted into a later line. Then prefetches the
  /// next three lines.
  bool PrefetchBehind(uint64_t hash) const noexcept {
    const Place& place = PlaceOf(hash);
    const uint64_t seeded = SeededHash(hash, seed_);
    const IndexLine* const home = place.lines + ReduceLow32(seeded, place.size);
    const auto behind = static_cast<uint32_t>(HasPassed(*home, seeded)) |
                        static_cast<uint32_t>(home->used == kFullLine);
    for (uint32_t i = 1; i <= 3; ++i) PrefetchFar(home + i * behind);
    return behind != 0;
  }

  /// Prefetches the bytes of a row's string key. Reads their address from the row, so prefetch the
  /// row earlier.
  void PrefetchKey(const char* row) const noexcept {
    PrefetchFar(reinterpret_cast<const char*>(
        static_cast<uintptr_t>(StringArena::LoadRef(row + key_offset_))));
  }

  /// Returns the key's row number, or kNoRow.
  uint32_t Find(const IndexKey& key) const noexcept {
    const Place& place = PlaceOf(key.hash);
    return FindRow(place.lines, place.size, key.word, SeededHash(key.hash, seed_),
                   [&](uint32_t row) { return IsRowOf(row, key); });
  }

  /// True if `row`, found by the key's word, belongs to `key`. String keys whose hashes are equal
  /// have the same word.
  bool IsRowOf(uint32_t row, const IndexKey& key) const noexcept {
    return key.bytes == nullptr || KeyBytes(row) == *key.bytes;
  }

  char* Row(uint32_t row) const noexcept { return slab_.Row(row); }

  /// The key bytes of a row in a table with string keys.
  std::string_view KeyBytes(uint32_t row) const noexcept { return KeyBytes(Row(row)); }
  std::string_view KeyBytes(const char* row) const noexcept {
    return StringArena::Get(StringArena::LoadRef(row + key_offset_));
  }

  /// Maps memory ahead, so that no page fault happens while the lock is held. Call it before the
  /// lock is taken.
  void Prefault() noexcept { memory_->Prefault(); }

  /// Inserts an absent key and returns its row. The caller must write the row's value and slots.
  uint32_t Insert(const IndexKey& key);

  /// Erases the key. Returns true if it existed. With `moved`, a tier keeps the row.
  bool Erase(const IndexKey& key, bool moved = false) noexcept;

  /// Replaces the strings of a row's value (dim): all, or none if it throws.
  void ReplaceStrings(char* row, const std::string_view* values);

  /// Removes all rows. `empty` comes from Emptied.
  void Clear(std::unique_ptr<Shard> empty) noexcept;

  // If a function below throws std::bad_alloc, it has changed nothing.

  /// Returns a shard for Clear.
  std::unique_ptr<Shard> Emptied() const;

  /// Rebuilds the index with space for `rows` rows in total, if it has less; with rows = 0, always,
  /// for the rows that the shard has. With `compact`, also copies the rows into new memory without
  /// gaps; otherwise the rows stay where they are.
  void Rebuild(uint64_t rows, bool compact);

  /// Returns a copy of all rows in a layout with slots added or removed. Row numbers are unchanged.
  Slab Relaid(const RowLayout& from, const RowLayout& to) const;

  /// Replaces the rows by the result of Relaid. `rows` receives the old rows.
  void Adopt(Slab* rows, const RowLayout& layout) noexcept {
    slab_.Swap(rows);
    key_offset_ = layout.key_offset();
  }

  /// Calls visit(word, row number) for all keys of the index segment that contains `hash`. Returns
  /// the last hash that belongs to this segment.
  template <typename Visit>
  uint64_t VisitSegment(uint64_t hash, Visit&& visit) const {
    const Place& place = PlaceOf(hash);
    ForEachEntry(place.lines, place.size, visit);
    const uint32_t bits = kShardBits + segments_[place.segment].depth;
    return hash | (~uint64_t{0} >> bits);
  }

  /// Counts the operations that may give a row number to another row. While the counter is
  /// unchanged, every row number still means the same row.
  uint64_t renumbered() const noexcept { return renumbered_; }

  /// May be read without the lock.
  uint64_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
  /// Calls visit(row number) for each key with this word. Only string keys can share a word.
  template <typename Visit>
  void VisitWord(uint64_t word, uint64_t hash, const Visit& visit) const {
    const Place& place = PlaceOf(hash);
    FindRow(place.lines, place.size, word, SeededHash(hash, seed_), [&](uint32_t row) {
      visit(row);
      return false;
    });
  }

  const Slab& slab() const noexcept { return slab_; }
  StringArena& arena() noexcept { return arena_; }
  const StringArena& arena() const noexcept { return arena_; }
  size_t index_bytes() const noexcept {
    return index_lines() * sizeof(IndexLine) + directory_.capacity() * sizeof(Place) +
           segments_.capacity() * sizeof(Segment);
  }
  size_t index_lines() const noexcept;
  /// True if the index is far larger than its rows need: rows were erased, or space was reserved.
  bool has_spare_index() const noexcept {
    // Growing segments are at least 40 % full, so this finds only an index that will not fill soon.
    return 2 * index_bytes() > 3 * (size() * kIndexBytesPerRow + 4 * sizeof(IndexLine));
  }

  /// Adds to probes[i] the number of keys that a search finds in the (i + 1)-th line that it
  /// visits. The last element counts all later lines too. Counts in a few segments and concludes
  /// from them on the others.
  void CountProbes(std::vector<uint64_t>* probes) const;

  mutable ShardLock lock;

  /// The observer, which writers call before they change a row; nullptr if no save has asked for
  /// one.
  std::unique_ptr<ChangeObserver> watch;

 private:
  struct Segment {
    IndexLine* lines;
    uint32_t size;
    uint32_t count;
    uint32_t depth;
  };

  /// Creates a shard without an index.
  Shard(Arena* arena, uint64_t seed, uint32_t segment_lines, size_t stride, KeyType key_type,
        DType value_dtype, size_t dim, size_t key_offset) noexcept
      : seed_(seed),
        segment_lines_(segment_lines),
        memory_(arena),
        slab_(stride, arena),
        key_type_(key_type),
        value_dtype_(value_dtype),
        dim_(dim),
        key_offset_(key_offset) {}
  struct Empty {};
  /// Creates a shard without index and rows, with the row size and types of `like`. The caller
  /// fills it and swaps its contents with `like`.
  Shard(const Shard& like, Empty) noexcept
      : Shard(like.memory_, like.seed_, like.segment_lines_, like.slab_.stride(), like.key_type_,
              like.value_dtype_, like.dim_, like.key_offset_) {}

  const Place& PlaceOf(uint64_t hash) const noexcept {
    return directory_[((hash << kShardBits) >> 1) >> shift_];
  }
  IndexLine* AllocateLines(uint32_t lines);
  void FreeLines(IndexLine* lines, uint32_t count) noexcept;
  void FreeIndex() noexcept;
  void MakeIndex(uint32_t lines, uint32_t depth);
  void SwapIndex(Shard* other) noexcept;
  void SwapRows(Shard* other) noexcept;
  const Place& PlaceWithRoom(uint64_t hash);
  void CopyPacked(const Shard& from, std::vector<std::pair<uint64_t, uint32_t>>* entries,
                  std::vector<std::pair<uint32_t, uint32_t>>* moves);
  void MakeRoom(uint64_t hash);
  void Resize(uint32_t segment, uint32_t lines);
  void Split(uint32_t segment, uint64_t hash);
  void PointAt(uint32_t segment, uint64_t hash);
  void FreeStrings(char* row) noexcept;
  void SetSize(uint64_t size) noexcept { size_.store(size, std::memory_order_relaxed); }

  std::vector<Place> directory_;
  uint32_t shift_ = 63;  ///< 63 - d, where the directory has 2^d entries
  std::vector<Segment> segments_;
  const uint64_t seed_;
  const uint32_t segment_lines_;  ///< a segment with so many lines is split instead of grown
  Arena* memory_;
  Slab slab_;
  StringArena arena_;
  std::vector<StringArena::Ref> fresh_strings_;  ///< used by ReplaceStrings; empty between calls
  std::atomic<uint64_t> size_{0};                ///< written under the lock
  uint64_t renumbered_ = 0;
  KeyType key_type_;
  DType value_dtype_;
  size_t dim_;
  size_t key_offset_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SHARD_H_
