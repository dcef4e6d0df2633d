// Tables of integer keys and float rows, their saved files, and the files' contents.
#ifndef DE_CORE_TESTING_SAVED_TABLE_H_
#define DE_CORE_TESTING_SAVED_TABLE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "de_core/cc/engine/save/save_source.h"
#include "de_core/cc/engine/save/table_restore.h"
#include "de_core/cc/engine/save/table_save.h"
#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/testing/batches.h"
#include "de_core/cc/testing/string_sink.h"
#include "de_core/cc/testing/test_executor.h"

namespace de::engine::testing {

/// A table with a policy in the format of ParseRowPolicy.
inline std::unique_ptr<Table> Make(const std::string& policy, TableOptions options = {}) {
  EXPECT_TRUE(ParseRowPolicy(policy, &options.policy).ok());
  std::unique_ptr<Table> table;
  EXPECT_TRUE(Table::Create(std::move(options), &table).ok());
  return table;
}

inline std::unique_ptr<Table> Make(size_t dim = 2) {
  TableOptions options;
  options.dim = dim;
  return Make("", options);
}

/// A table of string keys and string values.
inline std::unique_ptr<Table> MakeStrings(size_t dim) {
  TableOptions options;
  options.key_type = KeyType::kString;
  options.value_dtype = DType::kString;
  options.dim = dim;
  return Make("", options);
}

inline void Put(Table* table, const std::vector<int64_t>& keys, float value,
                Executor* executor = nullptr) {
  const std::vector<float> rows(keys.size() * table->options().dim, value);
  ASSERT_TRUE(table->InsertOrAssign(KeysOf(keys), RowsIn(rows), executor).ok());
}

inline std::map<int64_t, std::vector<float>> Contents(const Table& table) {
  std::map<int64_t, std::vector<float>> all;
  const size_t dim = table.options().dim;
  const size_t stride = table.layout().stride();
  RowBatch batch;
  for (ExportCursor cursor; !cursor.done;) {
    EXPECT_TRUE(table.ExportBatch(&cursor, &batch).ok());
    for (size_t i = 0; i < batch.size(); ++i) {
      std::vector<float> row(dim);
      std::memcpy(row.data(), batch.rows.data() + i * stride, dim * sizeof(float));
      all[static_cast<int64_t>(batch.words[i])] = row;
    }
  }
  return all;
}

inline std::vector<int64_t> Numbers(int64_t first, size_t count) {
  std::vector<int64_t> keys(count);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

/// Saves the table with id `number` and returns the bytes of the file, or an empty string if the
/// save failed. With `done`, calls TableSave::Done.
inline std::string Save(TableBackend* table, SaveOptions options, uint8_t number,
                        Executor* executor = nullptr, bool done = true) {
  options.id[0] = number;
  std::unique_ptr<TableSave> save;
  if (!TableSave::Begin(table, options, &save).ok()) return "";
  StringSink sink;
  if (!save->Write(&sink, executor).ok()) return "";
  if (done) {
    EXPECT_TRUE(save->Done().ok());
  }
  return sink.bytes();
}

inline SaveOptions ChainOf(const char* name, bool delta) {
  SaveOptions options;
  options.chain = name;
  options.delta = delta;
  return options;
}

/// Readers of files in memory.
class Readers {
 public:
  explicit Readers(const std::vector<std::string>& files) {
    for (const std::string& bytes : files) {
      owned_.emplace_back();
      Status status = SnapshotReader::Open(bytes.data(), bytes.size(), &owned_.back());
      if (status.ok()) status = VerifySections(*owned_.back(), nullptr);
      EXPECT_TRUE(status.ok()) << status.message;
      all.push_back(owned_.back().get());
    }
  }

  std::vector<const SnapshotReader*> all;

 private:
  std::vector<std::unique_ptr<SnapshotReader>> owned_;
};

inline std::map<int64_t, std::vector<float>> Restored(const std::vector<std::string>& files,
                                                      size_t dim = 2) {
  const auto table = Make(dim);
  const Readers readers(files);
  RestoreReport report;
  Threads threads(3);
  const Status status = RestoreTable(table.get(), readers.all, {}, &threads, &report);
  EXPECT_TRUE(status.ok()) << status.message;
  return Contents(*table);
}

/// Collects all rows of the source into `rows`, piece by piece.
inline Status CollectAll(SaveSource* source, SavedRows* rows) {
  for (SaveSource::Range range : source->ranges()) {
    uint64_t last = 0;
    for (bool done = false; !done;) {
      DE_RETURN_IF_ERROR(source->Collect(&range, rows, &last, &done));
    }
  }
  return Status::Ok();
}

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_SAVED_TABLE_H_
