// A read-only table. Lookups search the bytes of a mapped snapshot file in place. Only the section
// directory is copied (64 bytes per section of some thousand rows). So opening takes hardly any
// time, and processes or versions that map the same file share its pages.
//
// Safety. No contents of the file can make a lookup read outside the mapping. Offsets are checked
// when the file is opened, row numbers and string references when a lookup follows them. A file
// that shrinks while it is mapped needs a MappedRange: without it, a lookup ends the process.
#ifndef DE_CORE_ENGINE_FROZEN_TABLE_H_
#define DE_CORE_ENGINE_FROZEN_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/initial/initializer.h"
#include "de_core/cc/engine/policy/oov_policy.h"
#include "de_core/cc/engine/rows/value_reader.h"
#include "de_core/cc/engine/snapshot/snapshot_reader.h"

namespace de::engine {

/// Pages of mapped files that are read from the disk together. A page fault reads one page and
/// waits for it, so a thousand faults take a thousand times the disk's latency. A disk answers a
/// thousand reads that are requested together many times faster.
class PageBatch {
 public:
  /// Adds the pages of [at, at + bytes). Throws std::bad_alloc.
  void Add(const void* at, size_t bytes);

  /// Requests those added pages that are not in memory, and forgets all. Does not wait for the
  /// disk. It is a hint: failures are harmless.
  void Request() noexcept;

 private:
  std::vector<uintptr_t> pages_;
};

/// Output values of a lookup: `strings` for string values, `data` for all others, or neither if the
/// caller does not want values. The strings are views into the mapping and into the table.
struct FrozenOut {
  void* data = nullptr;                 // (keys, value_bytes), aligned to the value dtype
  std::string_view* strings = nullptr;  // (keys, dim)
};

/// The parts of a file that a lookup reads, in this order.
enum class FrozenPart { kLines, kRows, kTexts };

/// Immutable once opened, and thread-safe.
class FrozenTable {
 public:
  /// Opens the file of `reader`. The file must be in memory, which must outlive the table and start
  /// at a multiple of 64, as a mapping does. The policy and the initializer of the header
  /// `unknown`, which may be another file's, decide the values of unknown keys. InvalidArgument for
  /// a policy that does not fit the table.
  static Status Open(std::unique_ptr<SnapshotReader> reader, const SnapshotHeader& unknown,
                     std::unique_ptr<FrozenTable>* table) noexcept;

  /// Sets row i of `out` to the value of keys[i], or to the policy's value for an unknown key.
  /// Allocates nothing. Errors: InvalidArgument for keys or values of the wrong type, NotFound for
  /// an unknown key under OovPolicy::kError, DataLoss if the index is corrupt.
  Status Find(const Keys& keys, FrozenOut out,
              bool* found,  // (n), or nullptr
              // true: under OovPolicy::kError an unknown key is an error; false: it reads as zeros
              bool strict = true) const noexcept;

  /// Overrides the answers of earlier files by this file, a delta. Looks up keys[positions[j]] for
  /// j in [0, *count). If this file has a row for the key, writes the value to row positions[j] of
  /// `out` and sets found[positions[j]]. If it has a tombstone, writes the value of an unknown key
  /// and clears found[positions[j]]. If it has neither, changes nothing and keeps the position in
  /// `positions`. The kept positions stay in order; *count receives their number.
  Status Override(const Keys& keys, uint32_t* positions, size_t* count, FrozenOut out,
                  bool* found) const noexcept;

  /// Adds the pages of a part that lookups of the keys at `positions` read. Reads the earlier
  /// parts. The keys must have the table's type. Throws std::bad_alloc.
  void AddPages(FrozenPart part, const Keys& keys, const std::vector<uint32_t>& positions,
                PageBatch* pages) const;

  /// Calls visit(hash) for every key of the file, including tombstones. In a corrupt file also for
  /// other hashes.
  template <typename Visit>
  void ForEachHash(const Visit& visit) const {
    for (const Place& place : places_) {
      ForEachEntry(place.lines, place.line_count,
                   [&](uint64_t word, uint32_t) { visit(Mix64(word)); });
    }
  }

  /// Returns the error of OovPolicy::kError for a key.
  Status Missing(const Keys& keys, size_t i) const;

  uint64_t size() const noexcept { return reader_->rows(); }
  size_t dim() const noexcept { return header().layout.dim(); }
  /// bytes of a value that Find returns
  size_t value_bytes() const noexcept { return value_bytes_; }
  KeyType key_type() const noexcept { return header().layout.key_type(); }
  DType value_dtype() const noexcept { return header().reads_as(); }  ///< dtype that Find returns
  const SnapshotHeader& header() const noexcept { return reader_->header(); }
  const OovPolicy& oov() const noexcept { return oov_; }

  /// Returns the reader of the table's file, to enumerate or verify the file.
  const SnapshotReader& reader() const noexcept { return *reader_; }

 private:
  /// A section's location in memory. Fits in one cache line, for fast lookup.
  struct alignas(64) Place {
    uint64_t hash_last;
    const IndexLine* lines;  // (line_count)
    const char* rows;        // (count, stride)
    const char* strings;     // (string_bytes)
    uint64_t string_bytes;
    uint32_t line_count;
    uint32_t count;
    const char* tombstones;  // references to the string keys of tombstones
    uint32_t tombstone_count;
  };
  /// Where to search for hashes that begin with the same bits, so that most lookups do not read a
  /// Place. Four cells fit in a cache line. If all these hashes are in one section, the cell refers
  /// to its lines, which its rows follow. Otherwise the cell refers to a special line without keys
  /// that sends every search on to the search of all places.
  struct Cell {
    const IndexLine* lines;
    uint32_t line_count;
    uint32_t count;
  };
  /// The result of a search for one key.
  struct Answer {
    uint64_t word;
    const char* row;  ///< nullptr if the file has no row of the key
    bool gone;        ///< true if the file has a tombstone for the key
  };
  /// The reason why a batch cannot be answered: a corrupt section, or the first key without a row.
  struct Failure {
    const Place* corrupt = nullptr;
    size_t missing = kNone;

    static constexpr size_t kNone = ~size_t{0};
    bool any() const noexcept { return corrupt != nullptr || missing != kNone; }
  };

  explicit FrozenTable(std::unique_ptr<SnapshotReader> reader) : reader_(std::move(reader)) {}
  Status Start(const SnapshotHeader& unknown);
  void BuildPlaces();
  void BuildCells();
  Status PrepareOov(const InitializerOptions& initializer);
  void ReadValue(const char* row, char* value) const noexcept;
  void FillMissing(uint64_t word, char* value) const noexcept;
  bool ReadStrings(const Answer& answer, std::string_view* values) const noexcept;
  Status CheckArguments(const Keys& keys, const FrozenOut& out) const;
  Status Report(const Failure& failure, const Keys& keys) const;

  const Place& PlaceOf(uint64_t hash) const noexcept;
  bool StringAt(const Place& place, const char* at, std::string_view* text) const noexcept;
  bool RowKeyAt(const Place& place, uint32_t row, std::string_view* key) const noexcept;
  bool ResolveKey(const Place& place, std::string_view key, uint64_t word, uint64_t hash,
                  uint32_t* row) const noexcept;
  template <bool kStringKeys, typename PositionOf, typename Deliver>
  void Search(const Keys& keys, size_t count, const PositionOf& position_of, Failure* failure,
              const Deliver& deliver) const;
  template <bool kStringKeys, size_t kTouched, typename Deliver, typename Read>
  void FindChunk(const Keys& keys, size_t begin, size_t count, Failure* failure,
                 const Deliver& deliver, const Read& read) const;
  template <size_t kTouched, typename Deliver, typename Read>
  Status RunKeys(const Keys& keys, bool strict, const Deliver& deliver, const Read& read) const;
  template <size_t kTouched, typename Read>
  Status FindRows(const Keys& keys, char* values, bool* found, bool strict, const Read& read) const;
  template <size_t kTouched>
  Status ReadRows(const Keys& keys, char* values, bool* found, bool strict) const;

  const std::unique_ptr<SnapshotReader> reader_;
  /// the sections, and an empty place for hashes after the last section
  std::vector<Place> places_;
  std::vector<Cell> cells_;  // (2^(64 - cell_shift_))
  /// for each cell, the index of its first section in places_; then the number of sections
  std::vector<uint32_t> first_places_;
  uint32_t cell_shift_ = 63;
  size_t stride_ = 0;
  size_t value_bytes_ = 0;
  size_t scale_offset_ = 0;  ///< offset of the scale of int8 values; otherwise 0
  /// converts values that are stored as another dtype; empty if there is nothing to convert
  ValueReader read_;
  size_t key_offset_ = 0;
  size_t prefetch_bytes_ = 0;
  OovPolicy oov_;
  /// computes the rows of unknown keys, if they differ between keys
  std::unique_ptr<const Initializer> initializer_;
  std::vector<uint64_t> missing_;  ///< otherwise, the one row of all unknown keys
  std::vector<uint64_t> blank_;    ///< a placeholder row, read for keys whose row is found later
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_FROZEN_TABLE_H_
