// Saves, restores and frozen files while memory runs out: lets every allocation fail.
#include <utility>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/memory/mapped_range.h"
#include "de_core/cc/engine/save/table_restore.h"
#include "de_core/cc/engine/save/table_save.h"
#include "de_core/cc/engine/serving/frozen_chain.h"
#include "de_core/cc/testing/alloc_failure/alloc_failure_world.h"
#include "de_core/cc/testing/snapshot_fixture.h"
#include "de_core/cc/testing/string_sink.h"

namespace de::engine::testing {
namespace {

class AllocFailureFiles : public ::testing::TestWithParam<WorldKind> {
 protected:
  void Sweep(const Verb& verb) { SweepVerb(GetParam(), verb); }
};

INSTANTIATE_TEST_SUITE_P(Kinds, AllocFailureFiles, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return "Kind" + std::to_string(info.index); });

/// Allowed states of the batch's keys after it was written.
constexpr Allowed kWritten{k0, k1, k1};
/// States after a restore that stopped early: any row may be gone.
constexpr Allowed kPartGone{k0 | kAbsent, k0 | kAbsent, kAbsent};

using Files = std::vector<std::string>;

Status Save(World& world, SaveOptions options, Executor* executor, Files* files) {
  std::unique_ptr<TableSave> save;
  options.id[0] = static_cast<uint8_t>(files->size() + 1);
  DE_RETURN_IF_ERROR(TableSave::Begin(world.table.get(), std::move(options), &save));
  StringSink sink;
  DE_RETURN_IF_ERROR(save->Write(&sink, executor));
  DE_RETURN_IF_ERROR(save->Done());
  files->push_back(Faults::Quietly([&] { return sink.bytes(); }));
  return Status::Ok();
}

SaveOptions OptionsOf(bool delta, uint64_t held_bytes = 0) {
  return Faults::Quietly([&] {
    SaveOptions options;
    options.chain = "chain";
    options.delta = delta;
    options.held_bytes = held_bytes;
    return options;
  });
}

Status Restore(Table* table, const Files& files, const RestoreOptions& options,
               Executor* executor) {
  std::vector<std::unique_ptr<SnapshotReader>> owned(files.size());
  std::vector<const SnapshotReader*> readers;
  for (size_t i = 0; i < files.size(); ++i) {
    DE_RETURN_IF_ERROR(SnapshotReader::Open(files[i].data(), files[i].size(), &owned[i]));
    readers.push_back(owned[i].get());
  }
  RestoreReport report;
  return RestoreTable(table, readers, options, executor, &report);
}

/// Returns a complaint unless the files contain the rows of the world.
std::string Compare(const World& world, const Files& files) {
  const std::unique_ptr<Table> restored = world.Another();
  const Status status = Restore(restored.get(), files, {}, nullptr);
  if (!status.ok()) return "the files cannot be restored: " + status.message;
  return world.States(*restored) == world.States(*world.table) ? "" : "the files hold other rows";
}

/// Returns a verb that saves. Its file, or the chain up to this file, must contain the table's
/// rows.
Verb SaveOf(const char* name, Files* files, bool delta, uint64_t held_bytes) {
  Verb verb{name, {}, {}, {}, {}, {}};
  verb.run = [=](World& world, Executor* executor) {
    return Guarded([&] { return Save(world, OptionsOf(delta, held_bytes), executor, files); });
  };
  verb.verify = [=](const World& world, int) {
    return Compare(world, delta ? *files : Files{files->back()});
  };
  verb.prepare = [=](World& world) {
    files->clear();
    files->reserve(8);
    if (!delta) return;
    ASSERT_TRUE(Save(world, OptionsOf(false), nullptr, files).ok());
    ASSERT_TRUE(world.table->InsertOrAssign(world.batch(), world.written(), nullptr).ok());
  };
  if (delta) verb.failed = verb.done = kWritten;
  return verb;
}

TEST_P(AllocFailureFiles, saves) {
  Files files;
  Sweep(SaveOf("save", &files, false, 0));
  Sweep(SaveOf("save of one moment", &files, false, uint64_t{1} << 28));
  Sweep(SaveOf("save of a delta", &files, true, 0));
}

TEST_P(AllocFailureFiles, restores) {
  Files files;
  const auto save = [&](World& world) {
    files.clear();
    ASSERT_TRUE(Save(world, OptionsOf(false), nullptr, &files).ok());
  };
  const auto restore = [&](const RestoreOptions& options) {
    return [&files, options](World& world, Executor* executor) {
      return Guarded([&] { return Restore(world.table.get(), files, options, executor); });
    };
  };
  RestoreOptions merge;
  merge.replace = false;
  Sweep({"restore", restore({}), kPartGone, {}, save});
  Sweep({"restore into a table with rows", restore(merge), {}, {}, save});
  const auto save_chain = [&](World& world) {
    save(world);
    ASSERT_TRUE(world.table->InsertOrAssign(world.batch(), world.written(), nullptr).ok());
    ASSERT_TRUE(Save(world, OptionsOf(true), nullptr, &files).ok());
    if (!world.floats()) return;
    for (const char* owner : {"before", "behind"}) {
      ASSERT_TRUE(world.table->DropSlots(owner).ok());
    }
  };
  constexpr uint32_t kAny = kAbsent | k0 | k1;
  Sweep({"restore of a chain with slots",
         restore({}),
         {k0 | kAbsent, kAny, kAny},
         kWritten,
         save_chain});
  Sweep({"restore of a chain into a table with rows", restore(merge), kWritten, kWritten,
         save_chain});
}

TEST(RestoreMemory, rows_that_go_are_not_laid_out_anew) {
  World world(kKinds[0], 40000);
  Files files;
  ASSERT_TRUE(Save(world, OptionsOf(false), nullptr, &files).ok());
  const std::unique_ptr<Table> full = world.Another();
  ASSERT_TRUE(full->InsertOrAssign(world.batch(), world.written(), nullptr).ok());
  Faults::Arm(Fault::kOnce, -1);
  ASSERT_TRUE(Restore(full.get(), files, {}, nullptr).ok());
  Faults::Disarm();
  const TableStats stats = full->Stats();
  // Blocks are mapped as a whole. Adding the slots of one owner at a time would take more than
  // twice the memory.
  EXPECT_LT(Faults::mapped, (stats.row_bytes + stats.slot_bytes) * 2);
}

TEST_P(AllocFailureFiles, frozen_tables) {
  std::vector<std::unique_ptr<AlignedBytes>> kept;
  std::vector<std::string_view> mapped;
  const auto save = [&](World& world) {
    Files files;
    ASSERT_TRUE(Save(world, OptionsOf(false), nullptr, &files).ok());
    ASSERT_TRUE(world.table->InsertOrAssign(world.batch(), world.written(), nullptr).ok());
    ASSERT_TRUE(Save(world, OptionsOf(true), nullptr, &files).ok());
    kept.clear();
    mapped.clear();
    for (const std::string& bytes : files) {
      kept.push_back(std::make_unique<AlignedBytes>(bytes));
      mapped.emplace_back(kept.back()->data(), kept.back()->size());
    }
  };
  const auto serve = [&](World& world, Executor*) {
    std::unique_ptr<FrozenChain> chain;
    DE_RETURN_IF_ERROR(OpenChain(mapped, &chain));
    for (const std::string_view file : mapped) {
      std::unique_ptr<MappedRange> range;
      DE_RETURN_IF_ERROR(MappedRange::Watch(file.data(), file.size(), &range));
    }
    SectionBuffer buffer;
    for (size_t i = 0; i < chain->reader(0).sections().size(); ++i) {
      DE_RETURN_IF_ERROR(chain->reader(0).CheckSection(i, &buffer));
    }
    uint64_t rows = 0;
    DE_RETURN_IF_ERROR(chain->Size(&rows));
    if (rows != world.table->size()) return Status::Internal("another size");
    const Keys keys = world.batch();
    World::Output out = Faults::Quietly([&] { return World::Output(&world, keys.size); });
    std::vector<std::string_view> texts =
        Faults::Quietly([&] { return std::vector<std::string_view>(keys.size * world.dim()); });
    const FrozenOut to =
        world.floats() ? FrozenOut{out.values().data} : FrozenOut{nullptr, texts.data()};
    DE_RETURN_IF_ERROR(chain->Find(keys, to, out.found()));
    return chain->ReadAhead(keys);
  };
  Sweep({"open and find in frozen files", serve, kWritten, kWritten, save});
}

}  // namespace
}  // namespace de::engine::testing
