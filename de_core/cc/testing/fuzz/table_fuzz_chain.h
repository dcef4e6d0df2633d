// A base and its deltas: a fuzzer's table is saved and restored repeatedly.
#ifndef DE_CORE_TESTING_TABLE_FUZZ_CHAIN_H_
#define DE_CORE_TESTING_TABLE_FUZZ_CHAIN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "de_core/cc/engine/save/table_restore.h"
#include "de_core/cc/engine/save/table_save.h"
#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/testing/string_sink.h"

namespace de::engine::testing {

/// The files of one chain of saves, in memory.
class SavedChain {
 public:
  /// Writes a base. With `delta` and earlier files, writes the changes since the last file.
  Status Save(Table* table, bool delta, bool consistent) {
    SaveOptions options;
    options.chain = "fuzz";
    options.delta = delta && !files_.empty();
    options.id[0] = ++number_;
    if (consistent) options.held_bytes = uint64_t{1} << 30;
    if (!options.delta) files_.clear();
    std::unique_ptr<TableSave> save;
    DE_RETURN_IF_ERROR(TableSave::Begin(table, options, &save));
    StringSink sink;
    DE_RETURN_IF_ERROR(save->Write(&sink, nullptr));
    DE_RETURN_IF_ERROR(save->Done());
    files_.push_back(sink.bytes());
    return Status::Ok();
  }

  /// Reads all files into a table, which continues the chain.
  Status Restore(Table* table, Executor* executor) const {
    std::vector<std::unique_ptr<SnapshotReader>> owned(files_.size());
    std::vector<const SnapshotReader*> readers;
    for (size_t i = 0; i < files_.size(); ++i) {
      DE_RETURN_IF_ERROR(SnapshotReader::Open(files_[i].data(), files_[i].size(), &owned[i]));
      readers.push_back(owned[i].get());
    }
    RestoreOptions options;
    options.chain = "fuzz";
    RestoreReport report;
    return RestoreTable(table, readers, options, executor, &report);
  }

 private:
  std::vector<std::string> files_;
  uint8_t number_ = 0;
};

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_TABLE_FUZZ_CHAIN_H_
