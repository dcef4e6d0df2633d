// The peers of the table: other maps, and plain memory accesses.
#ifndef DE_CORE_TESTING_TABLE_BENCH_PEERS_H_
#define DE_CORE_TESTING_TABLE_BENCH_PEERS_H_

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#if defined(DE_HAVE_LIBCUCKOO)
#include <libcuckoo/cuckoohash_map.hh>
#endif
#if defined(DE_HAVE_ABSL)
#include <absl/container/flat_hash_map.h>
#endif
#if defined(DE_HAVE_BOOST)
#include <boost/unordered/unordered_flat_map.hpp>
#endif

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/memory/page_memory.h"
#include "de_core/cc/engine/rows/values.h"
#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/testing/bench/table_bench.h"

namespace de::bench {

/// The keys of a round and, for `gather` and `probe`, the positions of their rows.
struct Queries {
  std::vector<int64_t> keys;
  std::vector<uint32_t> rows;
};

/// Calls run(begin, count) for every batch of n keys.
template <typename RunBatch>
void ForBatches(size_t n, size_t batch, const RunBatch& run) {
  for (size_t at = 0; at < n; at += batch) run(at, at + batch < n ? batch : n - at);
}

inline void OkOrExit(const engine::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message.c_str());
  std::exit(1);
}

/// The engine's table.
class Ours {
 public:
  Ours(size_t dim, uint64_t init_size) {
    engine::TableOptions options;
    options.dim = dim;
    options.init_size = init_size;
    OkOrExit(engine::Table::Create(options, &table_));
  }

  void Upsert(const std::vector<int64_t>& keys, size_t batch, const char* values,
              engine::Executor* pool = nullptr) {
    ForBatches(keys.size(), batch, [&](size_t at, size_t count) {
      OkOrExit(table_->InsertOrAssign({keys.data() + at, nullptr, count}, {values, nullptr}, pool));
    });
  }

  void Find(const std::vector<int64_t>& keys, size_t batch, char* out,
            engine::Executor* pool = nullptr) const {
    ForBatches(keys.size(), batch, [&](size_t at, size_t count) {
      OkOrExit(table_->Find({keys.data() + at, nullptr, count}, {out, nullptr}, nullptr, pool));
    });
  }

 private:
  std::unique_ptr<engine::Table> table_;
};

/// Spreads integer keys over the buckets of a map as well as the engine's hash does.
struct MixedHash {
  size_t operator()(int64_t key) const noexcept {
    return engine::Mix64(static_cast<uint64_t>(key));
  }
};

/// libcuckoo with the rows stored in its slots, as other embedding libraries use it. Its hash is as
/// good as ours.
template <size_t kDim>
class Cuckoo {
 public:
  using Row = std::array<float, kDim>;
#if defined(DE_HAVE_LIBCUCKOO)
  static constexpr bool kThere = true;

  explicit Cuckoo(uint64_t init_size) {
    if (init_size > 0) map_.reserve(init_size);
  }
  void Upsert(const std::vector<int64_t>& keys, const char* values) {
    Row row;
    std::memcpy(row.data(), values, sizeof(row));
    for (const int64_t key : keys) map_.insert_or_assign(key, row);
  }
  void Find(const std::vector<int64_t>& keys, size_t batch, char* out) const {
    ForBatches(keys.size(), batch, [&](size_t at, size_t count) {
      for (size_t i = 0; i < count; ++i) {
        char* const to = out + i * sizeof(Row);
        const bool found = map_.find_fn(keys[at + i], [to](const Row& row) {
          engine::CopyBytes(to, reinterpret_cast<const char*>(row.data()), sizeof(Row));
        });
        if (!found) std::memset(to, 0, sizeof(Row));
      }
    });
  }

 private:
  libcuckoo::cuckoohash_map<int64_t, Row, MixedHash> map_;
#else
  static constexpr bool kThere = false;
  explicit Cuckoo(uint64_t) {}
  void Upsert(const std::vector<int64_t>&, const char*) {}
  void Find(const std::vector<int64_t>&, size_t, char*) const {}
#endif
};

/// A map whose library is not installed.
struct NoMap {};

#if defined(DE_HAVE_ABSL)
using AbslMap = absl::flat_hash_map<int64_t, uint32_t>;
#else
using AbslMap = NoMap;
#endif
#if defined(DE_HAVE_BOOST)
using BoostMap = boost::unordered_flat_map<int64_t, uint32_t, MixedHash>;
#else
using BoostMap = NoMap;
#endif

/// A hash map from keys to rows of a plain array. Prefetches the map's memory if the map can.
template <typename Map>
class Flat {
 public:
  static constexpr bool kThere = !std::is_same_v<Map, NoMap>;

  explicit Flat(const std::vector<int64_t>& keys) {
    if constexpr (kThere) {
      map_.reserve(keys.size());
      for (size_t i = 0; i < keys.size(); ++i) map_[keys[i]] = static_cast<uint32_t>(i);
    }
  }

  template <size_t kRowBytes>
  void Find(const std::vector<int64_t>& keys, size_t batch, const char* rows, char* out) const {
    if constexpr (kThere) {
      constexpr size_t kBlock = 32;
      ForBatches(keys.size(), batch, [&](size_t at, size_t count) {
        const char* from[kBlock];
        for (size_t first = 0; first < count; first += kBlock) {
          const size_t size = first + kBlock < count ? kBlock : count - first;
          const int64_t* const block = keys.data() + at + first;
          if constexpr (std::is_same_v<Map, AbslMap>) {
            for (size_t i = 0; i < size; ++i) map_.prefetch(block[i]);
          }
          for (size_t i = 0; i < size; ++i) {
            const auto found = map_.find(block[i]);
            from[i] = found == map_.end() ? nullptr : rows + size_t{found->second} * kRowBytes;
            if (from[i] != nullptr) engine::PrefetchBytes(from[i], kRowBytes);
          }
          for (size_t i = 0; i < size; ++i) {
            char* const to = out + (first + i) * kRowBytes;
            if (from[i] == nullptr) {
              std::memset(to, 0, kRowBytes);
            } else {
              engine::CopyBytes(to, from[i], kRowBytes);
            }
          }
        }
      });
    }
  }

 private:
  Map map_;
};

/// Measures how fast memory is at best: a plain array of rows in huge pages, and the cache lines of
/// an index that holds their row numbers. Prefetches reads at the best distance for this machine.
template <size_t kDim>
class Memory {
 public:
  static constexpr size_t kRowBytes = kDim * sizeof(float);

  explicit Memory(uint64_t rows) : rows_(rows * kRowBytes), lines_((rows / 4 + 1) * 64) {
    for (uint64_t at = 0; at < rows_.bytes(); at += 4096) rows_.data()[at] = 1;
    // Line r / 4 holds the number of row r: four of a line's five places are used.
    for (uint64_t row = 0; row < rows; ++row) Entry(row) = static_cast<uint32_t>(row);
  }

  const char* rows() const { return rows_.data(); }

  /// Copies the rows with the given numbers.
  void Gather(const Queries& queries, size_t batch, char* out) const {
    const uint32_t* const at = queries.rows.data();
    const size_t near = gather_ahead_;
    const size_t n = queries.rows.size();
    ForBatches(n, batch, [&](size_t first, size_t count) {
      const uint32_t* const block = at + first;
      const size_t left = n - first;  // prefetching continues into the next batch
      for (size_t i = 0; i < count; ++i) {
        if (i + near < left) engine::PrefetchBytes(Row(block[i + near]), kRowBytes);
        engine::CopyBytes(out + i * kRowBytes, Row(block[i]), kRowBytes);
      }
    });
  }

  /// Reads one index line and copies the row that it refers to.
  void Probe(const Queries& queries, size_t batch, char* out) const {
    const uint32_t* const at = queries.rows.data();
    const size_t n = queries.rows.size();
    const size_t near = probe_ahead_, far = 2 * near;
    ForBatches(n, batch, [&](size_t first, size_t count) {
      const uint32_t* const block = at + first;
      const size_t left = n - first;
      for (size_t i = 0; i < count; ++i) {
        if (i + far < left) engine::PrefetchFar(&Entry(block[i + far]));
        if (i + near < left) engine::PrefetchBytes(Row(Entry(block[i + near])), kRowBytes);
        engine::CopyBytes(out + i * kRowBytes, Row(Entry(block[i])), kRowBytes);
      }
    });
  }

  /// Finds the prefetch distances that are fastest for these queries.
  void Tune(const Queries& queries, size_t batch, char* out) {
    double best_gather = 1e9, best_probe = 1e9;
    size_t gather = 0, probe = 0;
    for (const size_t ahead : {4, 8, 12, 16, 24, 32, 48}) {
      gather_ahead_ = probe_ahead_ = ahead;
      const double start = CpuSeconds();
      Gather(queries, batch, out);
      const double middle = CpuSeconds();
      Probe(queries, batch, out);
      const double end = CpuSeconds();
      if (middle - start < best_gather) gather = ahead;
      if (end - middle < best_probe) probe = ahead;
      best_gather = std::min(best_gather, middle - start);
      best_probe = std::min(best_probe, end - middle);
    }
    gather_ahead_ = gather;
    probe_ahead_ = probe;
  }

 private:
  const char* Row(uint32_t row) const { return rows_.data() + size_t{row} * kRowBytes; }

  uint32_t& Entry(uint64_t row) const {
    return reinterpret_cast<uint32_t*>(lines_.data() + row / 4 * 64)[10 + row % 4];
  }

  engine::PageMemory rows_;
  engine::PageMemory lines_;
  size_t gather_ahead_ = 16, probe_ahead_ = 16;
};

}  // namespace de::bench

#endif  // DE_CORE_TESTING_TABLE_BENCH_PEERS_H_
