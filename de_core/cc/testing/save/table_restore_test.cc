// Restoring files into a table: the rows of a base and a delta, and their slots. A file that is
// refused changes nothing. tests/checkpoint/test_save_restore.py tests merges, shards and keys.
#include "de_core/cc/engine/save/table_restore.h"

#include <gtest/gtest.h>

#include "de_core/cc/testing/saved_table.h"

namespace de::engine::testing {
namespace {

using Rows = std::map<int64_t, std::vector<float>>;

/// Returns a base with the keys 0 to 999, and a delta that overwrites or adds
/// 990 to 1009 and erases 0 to 9.
std::vector<std::string> BaseAndDelta() {
  const auto table = Make();
  Put(table.get(), Numbers(0, 1000), 1);
  std::vector<std::string> files = {Save(table.get(), ChainOf("c", false), 1)};
  Put(table.get(), Numbers(990, 20), 2);
  const std::vector<int64_t> gone = Numbers(0, 10);
  EXPECT_TRUE(table->Erase(KeysOf(gone), nullptr).ok());
  files.push_back(Save(table.get(), ChainOf("c", true), 2));
  return files;
}

Rows Expected() {
  Rows rows;
  for (int64_t key = 10; key < 1010; ++key)
    rows[key] = std::vector<float>(2, key < 990 ? 1.F : 2.F);
  return rows;
}

Status Restore(Table* table, const Readers& readers, const RestoreOptions& options,
               RestoreReport* report = nullptr, Executor* executor = nullptr) {
  RestoreReport ignored;
  return RestoreTable(table, readers.all, options, executor, report == nullptr ? &ignored : report);
}

TEST(TableRestore, replaces_what_is_there) {
  const std::vector<std::string> files = BaseAndDelta();
  const Readers readers(files);
  const auto table = Make();
  Put(table.get(), {5, -7, 500}, 9);
  RestoreReport report;
  ASSERT_TRUE(Restore(table.get(), readers, {}, &report).ok());
  EXPECT_EQ(Contents(*table), Expected());
  EXPECT_EQ(report.read, 1000U + 20 + 10);
  EXPECT_EQ(report.bytes, files[0].size() + files[1].size());
  EXPECT_EQ(Restored(files), Expected()) << "on several threads";
}

TEST(TableRestore, slots_that_were_dropped_between_two_saves_do_not_come_back) {
  const SlotSpec momentum = {"m", DType::kFloat32, 1, 0.5};
  const int64_t key = 7;
  float slot = 3;
  for (const bool again : {false, true}) {
    const auto saved = Make();
    ASSERT_TRUE(saved->EnsureSlots("opt", {momentum}).ok());
    Put(saved.get(), {key}, 1);
    ASSERT_TRUE(saved
                    ->AssignSlot("opt", "m", sizeof(slot), {&key, nullptr, 1},
                                 reinterpret_cast<char*>(&slot))
                    .ok());
    std::vector<std::string> files = {Save(saved.get(), ChainOf("c", false), 1)};
    ASSERT_TRUE(saved->DropSlots("opt").ok());
    if (again) {
      ASSERT_TRUE(saved->EnsureSlots("opt", {momentum}).ok());
    }
    files.push_back(Save(saved.get(), ChainOf("c", true), 2));
    const auto table = Make();
    ASSERT_TRUE(Restore(table.get(), Readers(files), {}).ok());
    float read = 0;
    const Status found = table->FindSlot("opt", "m", sizeof(read), {&key, nullptr, 1},
                                         reinterpret_cast<char*>(&read), nullptr);
    EXPECT_EQ(found.code, again ? Code::kOk : Code::kNotFound) << found.message;
    EXPECT_EQ(read, again ? 0.5F : 0);
    EXPECT_EQ(Contents(*table), Contents(*saved));
  }
}

/// Restores that are refused and leave the table unchanged.
class RefusedRestore : public ::testing::Test {
 protected:
  void Expect(const std::vector<const SnapshotReader*>& files, const RestoreOptions& options,
              Code code, const std::string& said) {
    RestoreReport report;
    Threads threads(2);
    for (Executor* executor : {static_cast<Executor*>(nullptr), static_cast<Executor*>(&threads)}) {
      const Status status = RestoreTable(table_.get(), files, options, executor, &report);
      EXPECT_EQ(status.code, code);
      EXPECT_NE(status.message.find(said), std::string::npos) << status.message;
      EXPECT_EQ(Contents(*table_), (Rows{{1, {9, 9}}}));
    }
  }
  void SetUp() override { Put(table_.get(), {1}, 9); }

  std::vector<std::string> files_ = BaseAndDelta();
  std::unique_ptr<Table> table_ = Make();
};

TEST_F(RefusedRestore, names_options_that_do_not_fit) {
  const Readers readers(files_);
  RestoreOptions options;
  options.shard_index = options.shard_count = 2;
  Expect(readers.all, options, Code::kInvalidArgument, "Received: shard_index=2, shard_count=2");
  options = {};
  options.chain = "c";
  options.replace = false;
  Expect(readers.all, options, Code::kInvalidArgument, "Received: chain=c");
}

TEST_F(RefusedRestore, names_files_that_make_no_chain) {
  const Readers readers(files_);
  Expect({}, {}, Code::kInvalidArgument, "Received: none");
  Expect({readers.all[1]}, {}, Code::kFailedPrecondition, "Received: file 0");
  Expect({readers.all[0], readers.all[0]}, {}, Code::kFailedPrecondition, "Received: file 1");
}

TEST_F(RefusedRestore, names_tables_of_another_kind) {
  const auto wide = Make(3);
  Put(wide.get(), {4}, 1);
  const std::vector<std::string> other = {Save(wide.get(), {}, 7)};
  const Readers readers(other);
  Expect(readers.all, {}, Code::kInvalidArgument, "Received: ");
  SaveOptions options;
  options.store_as = DType::kHalf;
  const auto same = Make();
  Put(same.get(), {4}, 1);
  const std::vector<std::string> halves = {Save(same.get(), options, 7)};
  const Readers half(halves);
  Expect(half.all, {}, Code::kInvalidArgument,
         "Received: float32 stored as float16 for a table of float32");
  RestoreOptions convert;
  convert.convert = true;
  ASSERT_TRUE(Restore(table_.get(), half, convert).ok());
  EXPECT_EQ(Contents(*table_), (Rows{{4, {1, 1}}}));
}

TEST_F(RefusedRestore, finds_a_damaged_byte_of_the_last_file_before_any_row_is_read) {
  std::vector<std::unique_ptr<SnapshotReader>> owned(2);
  std::vector<const SnapshotReader*> all;
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(SnapshotReader::Open(files_[i].data(), files_[i].size(), &owned[i]).ok());
    all.push_back(owned[i].get());
  }
  const std::vector<SectionRecord>& sections = all[1]->sections();
  files_[1][sections.back().offset + 70] ^= 1;
  Expect(all, {}, Code::kDataLoss,
         "section " + std::to_string(sections.size() - 1) + " at offset ");
}

}  // namespace
}  // namespace de::engine::testing
