// Verbs of a table with rows on a disk while memory runs out: lets every allocation fail.
#include <filesystem>
#include <numeric>

#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/engine/tier/disk_rows.h"
#include "de_core/cc/engine/tier/tiered_table.h"
#include "de_core/cc/testing/alloc_failure/alloc_failure.h"
#include "de_core/cc/testing/saved_table.h"

namespace de::engine {
namespace {

using testing::Fault;
using testing::Faults;

constexpr size_t kDim = 8;
constexpr size_t kOld = 400;    // keys that have a row at first
constexpr size_t kBatch = 100;  // keys of a verb: half of them have a row

/// Which rows may be gone after a verb that failed.
enum class Vanish : uint8_t { kNone, kBatch, kAny, kAllOrNone };

/// A table whose memory holds about a tenth of its rows.
struct TieredWorld {
  TieredWorld() : directory(::testing::TempDir() + "/alloc_tier_XXXXXX") {
    if (mkdtemp(directory.data()) == nullptr) std::abort();
    TableOptions options;
    options.dim = kDim;
    std::unique_ptr<DiskRows> cold;
    Keep(DiskRows::Create({directory, 1 << 14, 8, true}, KeyType::kInt64, &cold));
    Keep(TieredTable::Create(options, 4000, std::move(cold), &table));
    keys.resize(kOld + kBatch / 2);
    std::iota(keys.begin(), keys.end(), 0);
    for (size_t at = 0; at < kOld; at += 50) Keep(Assign({&keys[at], nullptr, 50}, 1));
    batch = {&keys[kOld - kBatch / 2], nullptr, kBatch};
    Keep(Assign({keys.data(), nullptr, 50}, 1));  // the batch's rows become cold
    Keep(Read());                                 // some of them are in the cache
  }
  ~TieredWorld() {
    table.reset();
    std::filesystem::remove_all(directory);
  }
  void Keep(const Status& status) {
    if (!status.ok()) complaint = status.message;
  }
  Status Assign(const Keys& some, float value) {
    const auto rows = Faults::Quietly([&] { return std::vector<float>(some.size * kDim, value); });
    return table->InsertOrAssign(some, RowsIn(rows), nullptr);
  }
  Status Read() {
    auto rows = Faults::Quietly([&] { return std::vector<float>(batch.size * kDim); });
    return table->FindToTrain(batch, RowsTo(&rows), nullptr, nullptr);
  }

  /// Returns a complaint unless each row is as before the verb or as after it.
  std::string Check(Vanish vanish) {
    if (!complaint.empty()) return complaint;
    std::vector<float> rows(keys.size() * kDim);
    const auto found = std::make_unique<bool[]>(keys.size());
    const Status status = table->FindToTrain(KeysOf(keys), RowsTo(&rows), found.get(), nullptr);
    if (!status.ok()) return status.message;
    size_t count = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool is_other = i < kOld - kBatch / 2;
      count += found[i];
      if (is_other && !found[i] && vanish < Vanish::kAny) return "a row of another key is gone";
      if (i < kOld && !found[i] && vanish == Vanish::kNone) return "a row is gone";
      const float row = rows[i * kDim];
      for (size_t c = 1; c < kDim; ++c) {
        if (rows[i * kDim + c] != row) return "a row is half written";
      }
      if (found[i] && row != 1 && (is_other || row != 2)) return "a row has a wrong value";
    }
    if (vanish == Vanish::kAllOrNone && count != 0 && count != kOld) {
      return std::to_string(count) + " of " + std::to_string(kOld) + " rows are there";
    }
    if (table->size() != count) {
      return "size() is " + std::to_string(table->size()) + ", not " + std::to_string(count);
    }
    // The table is usable, and its files are cleaned.
    for (size_t i = 0; i < 20 && complaint.empty(); ++i)
      Keep(Assign({keys.data(), nullptr, 150}, 1));
    return complaint;
  }

  std::string directory;
  std::unique_ptr<TableBackend> table;
  std::vector<int64_t> keys;
  Keys batch;
  std::string complaint;
};

using TierVerb = Status (*)(TieredWorld&);

void Sweep(const char* name, TierVerb verb, Vanish vanish = Vanish::kNone) {
  testing::Report(testing::Sweep(name, 200, [&](Fault fault, int64_t nth) {
    TieredWorld world;
    Faults::Arm(fault, nth);
    (void)verb(world);  // a verb must not throw
    Faults::Disarm();
    return world.Check(vanish);
  }));
}

TEST(AllocFailureTier, Lookups) {
  Sweep("lookup", [](TieredWorld& world) { return world.Read(); });
  Sweep("read of a slot", [](TieredWorld& world) {
    auto times = Faults::Quietly([] { return std::vector<int64_t>(kBatch); });
    return ReadColumn(*world.table, RowColumn::kTime, world.batch, times.data());
  });
  Sweep("export", [](TieredWorld& world) -> Status {
    auto batch = Faults::Quietly([] { return RowBatch(); });
    for (ExportCursor cursor; !cursor.done;) {
      DE_RETURN_IF_ERROR(world.table->ExportBatch(&cursor, &batch));
    }
    return Status::Ok();
  });
}

TEST(AllocFailureTier, Writes) {
  Sweep("upsert", [](TieredWorld& world) { return world.Assign(world.batch, 2); });
  Sweep("accumulation", [](TieredWorld& world) {
    const auto ones = Faults::Quietly([] { return std::vector<float>(kBatch * kDim, 1); });
    return world.table->AccumOrAssign(world.batch, ones.data(), nullptr, nullptr);
  });
  Sweep("new slots", [](TieredWorld& world) {
    const auto slots =
        Faults::Quietly([] { return std::vector<SlotSpec>{{"m", DType::kFloat32, kDim, 0}}; });
    return world.table->EnsureSlots("o", slots);
  });
}

TEST(AllocFailureTier, Erasures) {
  Sweep(
      "erasure", [](TieredWorld& world) { return world.table->Erase(world.batch, nullptr); },
      Vanish::kBatch);
  Sweep(
      "removal of all rows", [](TieredWorld& world) { return world.table->Clear(); },
      Vanish::kAllOrNone);
}

TEST(AllocFailureTier, ARestoreCountsTheRowsThatAreThere) {
  Sweep(
      "restore",
      [](TieredWorld& world) {
        const auto files = Faults::Quietly(
            [&] { return std::vector<std::string>{testing::Save(world.table.get(), {}, 1)}; });
        const auto readers =
            Faults::Quietly([&] { return std::make_unique<testing::Readers>(files); });
        RestoreReport report;
        return RestoreTable(world.table.get(), readers->all, {}, nullptr, &report);
      },
      Vanish::kAny);
}

TEST(AllocFailureTier, ReadsOfBlocksAllocateNothing) {
  for (const bool use_ring : {true, false}) {
    BlockReader reader(8, use_ring);
    std::vector<BlockRead> reads(20);  // of no file, so each fails
    std::vector<char> memory(4 * kBlockBytes);
    Faults::Arm(Fault::kForGood, 1);
    for (int i = 0; i < 10; ++i) {
      for (BlockRead& read : reads) read.bytes = kBlockBytes;
      reader.ReadEach(reads.data(), reads.size(), {memory.data(), kBlockBytes, 4}, nullptr,
                      [](size_t) {});
    }
    Faults::Disarm();
    EXPECT_EQ(Faults::calls, 0);
    for (const BlockRead& read : reads) EXPECT_EQ(read.error, EBADF);
  }
}

}  // namespace
}  // namespace de::engine
