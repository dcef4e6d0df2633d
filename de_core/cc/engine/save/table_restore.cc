#include "de_core/cc/engine/save/table_restore.h"

#include <algorithm>
#include <atomic>

#include "de_core/cc/engine/base/guarded_tasks.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/rows/row_converter.h"

namespace de::engine {
namespace {

/// Calls task(section) for all sections of a file. Adjacent sections run on one thread, because
/// they belong to the same shard of the table. Returns the error of a task, or OK.
template <typename Task>
Status ForEachSection(const SnapshotReader& file, Executor* executor, const Task& task) {
  const size_t sections = file.sections().size();
  const size_t threads = executor == nullptr ? 1 : std::max<size_t>(executor->threads(), 1);
  const size_t parts = std::min(sections, threads);
  FirstFailure failure;
  const auto part = [&](size_t number) {
    failure.Run([&] {
      SectionBuffer buffer;
      const size_t end = sections * (number + 1) / parts;
      for (size_t i = sections * number / parts; i < end && !failure.failed(); ++i) {
        DE_RETURN_IF_ERROR(file.ReadSection(i, &buffer));
        DE_RETURN_IF_ERROR(task(buffer.section));
      }
      return Status::Ok();
    });
  };
  RunTasks(parts > 1 ? executor : nullptr, parts, part);
  return failure.Take();
}

/// Selects the keys that a restore reads.
struct Filter {
  uint32_t shard_index = 0;
  uint32_t shard_count = 1;
  bool chosen = false;
  KeySet keys;                    ///< with `chosen`: read only these keys
  const KeySet* newer = nullptr;  ///< skip these keys, because a later file has them

  bool active() const noexcept { return shard_count > 1 || chosen || newer != nullptr; }
  bool Takes(uint64_t word, const std::string_view* text) const noexcept {
    if (shard_count > 1 && ShardOfKey(word, shard_count) != shard_index) return false;
    if (chosen && !keys.Contains(word, text)) return false;
    return newer == nullptr || !newer->Contains(word, text);
  }
};

Status AddKeys(const SnapshotReader& file, KeySet* keys) {
  SectionBuffer buffer;
  for (size_t i = 0; i < file.sections().size(); ++i) {
    DE_RETURN_IF_ERROR(file.ReadSection(i, &buffer));
    for (const std::string_view text : buffer.keys) keys->Add(text);
    if (!buffer.keys.empty()) continue;
    for (const uint64_t word : buffer.words) keys->Add(word);
  }
  return Status::Ok();
}

/// The slots of one optimizer.
struct OwnedSlots {
  std::string owner;
  std::vector<SlotSpec> specs;
};

/// Returns the slots in `files` that a table of `layout` does not have, grouped by optimizer.
/// InvalidArgument if the table has a slot of the same name with another width or kind of dtype.
Status MissingSlots(RowLayout layout, const std::vector<const SnapshotReader*>& files,
                    std::vector<OwnedSlots>* missing) {
  for (const SnapshotReader* file : files) {
    for (const RowSlot& slot : file->header().layout.slots()) {
      if (slot.owner == kScaleOwner) continue;
      std::vector<SlotSpec> specs;
      DE_RETURN_IF_ERROR(layout.FindChanges(slot.owner, {slot.spec}, &specs));
      // Slots of another dtype are converted to the table's.
      if (layout.FindSlot(slot.owner, slot.spec.name) != nullptr) continue;
      layout.Append(slot.owner, specs);
      const auto is_owners = [&](const OwnedSlots& each) { return each.owner == slot.owner; };
      auto at = std::find_if(missing->begin(), missing->end(), is_owners);
      if (at == missing->end()) at = missing->insert(at, {slot.owner, {}});
      at->specs.push_back(slot.spec);
    }
  }
  return Status::Ok();
}

/// Applies the rows and tombstones of a file's sections to a table.
class SectionLoader {
 public:
  /// Checks that the file has the table's key type and dim, and the table's dtype unless `convert`
  /// is set. With `slots`, the loader also reads the file's slots.
  static Status Create(TableBackend* table, const SnapshotHeader& header,
                       const RestoreOptions& wanted, SectionLoader* loader) {
    const bool slots = wanted.slots, convert = wanted.convert;
    const TableOptions& options = table->options();
    const RowLayout& file = header.layout;
    const bool same = file.value_dtype() == options.value_dtype && !header.converted.has_value();
    if (!same && !convert && IsFloating(header.reads_as()) && IsFloating(options.value_dtype)) {
      return Status::InvalidArgument(
          "the file's values must have the table's dtype; set convert to convert them. Received: " +
          std::string(NameOf(header.reads_as())) + " stored as " +
          std::string(NameOf(file.value_dtype())) + " for a table of " +
          std::string(NameOf(options.value_dtype)));
    }
    loader->table_ = table;
    loader->file_ = file;
    loader->target_ = RowLayout(options.key_type, options.value_dtype, options.dim);
    for (const RowSlot& slot : file.slots()) {
      // The file's steps have another beginning than the steps of a table that keeps its rows.
      const bool foreign = !wanted.replace && slot.owner == kMetadataOwner &&
                           slot.spec.name == NameOf(RowColumn::kStep);
      if (slots && !foreign && slot.owner != kScaleOwner) {
        loader->target_.Append(slot.owner, {slot.spec});
      }
    }
    // Load no rows: this only checks key type, dtype and dim.
    DE_RETURN_IF_ERROR(
        table->LoadRows(same ? file : RowLayout(file.key_type(), options.value_dtype, file.dim()),
                        {}, {}, nullptr));
    DE_RETURN_IF_ERROR(RowConverter::Create(file, loader->target_, slots, &loader->converter_));
    return Status::Ok();
  }

  /// Inserts the rows of the keys that `filter` takes.
  Status Load(const SnapshotSection& section, const Filter& filter) const {
    return Guarded([&]() -> Status {
      const Keys all = Keys::Of(section.words, section.keys, section.count);
      if (all.size == 0) return Status::Ok();
      if (!filter.active() && converter_.identity()) {
        return table_->LoadRows(target_, all, {section.rows, section.values}, nullptr);
      }
      const size_t from = file_.stride(), to = target_.stride();
      KeyList taken;
      std::vector<std::string_view> values;
      std::vector<char> rows(section.count * to);
      char* row = rows.data();
      for (size_t i = 0; i < section.count; ++i) {
        const std::string_view* const key = section.keys == nullptr ? nullptr : section.keys + i;
        if (!filter.Takes(section.words[i], key)) continue;
        converter_.Convert(section.rows + i * from, row);
        row += to;
        taken.Add(all, i);
        if (section.values != nullptr) {
          values.insert(values.end(), section.values + i * file_.dim(),
                        section.values + (i + 1) * file_.dim());
        }
      }
      const Keys keys = taken.keys();
      if (keys.size == 0) return Status::Ok();
      return table_->LoadRows(target_, keys,
                              {rows.data(), section.values == nullptr ? nullptr : values.data()},
                              nullptr);
    });
  }

  /// Removes the rows of the tombstones that `filter` takes.
  Status Erase(const SnapshotSection& section, const Filter& filter) const {
    return Guarded([&] {
      const Keys all =
          Keys::Of(section.tombstone_words, section.tombstone_keys, section.tombstones);
      KeyList taken;
      for (size_t i = 0; i < all.size; ++i) {
        const std::string_view* const key = all.strings == nullptr ? nullptr : all.strings + i;
        if (filter.Takes(section.tombstone_words[i], key)) taken.Add(all, i);
      }
      const Keys keys = taken.keys();
      return keys.size == 0 ? Status::Ok() : table_->Erase(keys, nullptr);
    });
  }

 private:
  TableBackend* table_ = nullptr;
  RowLayout file_{KeyType::kInt64, DType::kFloat32, 1};
  RowLayout target_{KeyType::kInt64, DType::kFloat32, 1};
  RowConverter converter_;
};

Status CheckOptions(const std::vector<ChainSpan>& chains, const RestoreOptions& options,
                    bool same_dtype) {
  if (options.shard_index >= options.shard_count) {
    return Status::InvalidArgument("shard_index must be below shard_count. Received: shard_index=" +
                                   std::to_string(options.shard_index) +
                                   ", shard_count=" + std::to_string(options.shard_count));
  }
  const bool whole = options.replace && options.slots && (!options.convert || same_dtype) &&
                     options.shard_count == 1 && options.keys == nullptr && chains.size() == 1;
  if (!options.chain.empty() && !whole) {
    return Status::InvalidArgument(
        "to continue a chain of saves, restore one base and its deltas completely and unconverted, "
        "into an empty or replaced table. Received: chain=" +
        options.chain);
  }
  return Status::Ok();
}

/// Adds the missing slots, inserts the rows, and loads the policies' state.
Status Fill(TableBackend* table, const std::vector<const SnapshotReader*>& files,
            const std::vector<ChainSpan>& chains, const std::vector<SectionLoader>& loaders,
            const std::vector<OwnedSlots>& missing, uint64_t rows, const RestoreOptions& options,
            Executor* executor, RestoreReport* report) {
  for (const auto& [owner, specs] : missing) DE_RETURN_IF_ERROR(table->EnsureSlots(owner, specs));
  for (const ChainSpan& chain : chains) {
    if (options.slots && options.replace) {
      table->LoadSteps(files[chain.end - 1]->header().metadata);
    }
  }
  rows /= options.shard_count;
  if (options.keys != nullptr) rows = std::min<uint64_t>(rows, options.keys->size);
  if (table->size() < rows) DE_RETURN_IF_ERROR(table->Reserve(rows));
  Filter filter;
  filter.shard_index = options.shard_index;
  filter.shard_count = options.shard_count;
  filter.chosen = options.keys != nullptr;
  if (filter.chosen) filter.keys.Add(*options.keys);
  filter.keys.Seal();
  std::atomic<uint64_t> read{0};
  for (const ChainSpan& chain : chains) {
    for (size_t at = chain.from; at < chain.end; ++at) {
      // Without `replace`, the tombstones of the files are not applied, because they would delete
      // rows that the table keeps. So apply only each key's last state.
      KeySet newer;
      for (size_t later = at + 1; !options.replace && later < chain.end; ++later) {
        DE_RETURN_IF_ERROR(AddKeys(*files[later], &newer));
      }
      newer.Seal();
      filter.newer = newer.empty() ? nullptr : &newer;
      if (options.replace && files[at]->tombstones() > 0) {
        // First of all, so that a table with a bound never has more rows than it was saved with.
        const auto erase = [&](const SnapshotSection& section) {
          return loaders[at].Erase(section, filter);
        };
        DE_RETURN_IF_ERROR(ForEachSection(*files[at], executor, erase));
      }
      DE_RETURN_IF_ERROR(ForEachSection(*files[at], executor, [&](const SnapshotSection& section) {
        read += section.count + section.tombstones;
        return loaders[at].Load(section, filter);
      }));
      report->bytes += files[at]->file_bytes();
    }
    if (options.slots) {
      DE_RETURN_IF_ERROR(table->LoadCounts(files[chain.end - 1]->header().metadata,
                                           options.shard_index, options.shard_count));
    }
  }
  report->read = read;
  return Status::Ok();
}

}  // namespace

Status VerifySections(const SnapshotReader& file, Executor* executor, bool int32_keys) {
  return ForEachSection(file, executor, [&](const SnapshotSection& section) {
    return int32_keys ? CheckInt32Keys(section) : Status::Ok();
  });
}

Status CheckInt32Keys(const SnapshotSection& section) {
  for (size_t i = 0; i < section.count + section.tombstones; ++i) {
    const auto key = static_cast<int64_t>(
        i < section.count ? section.words[i] : section.tombstone_words[i - section.count]);
    if (key == static_cast<int32_t>(key)) continue;
    return Status::InvalidArgument(
        "every key must be in int32, the table's key dtype; use a table of int64 keys. Received: "
        "key=" +
        std::to_string(key));
  }
  return Status::Ok();
}

Status RestoreTable(TableBackend* table, const std::vector<const SnapshotReader*>& files,
                    const RestoreOptions& options, Executor* executor, RestoreReport* report) {
  return Guarded([&]() -> Status {
    std::vector<ChainSpan> chains;
    DE_RETURN_IF_ERROR(CheckChains(files, &chains));
    // CheckChains made sure that all files are read as the same dtype, even if they store values as
    // different dtypes.
    const bool same_dtype = files[0]->header().reads_as() == table->layout().value_dtype();
    DE_RETURN_IF_ERROR(CheckOptions(chains, options, same_dtype));
    std::vector<SectionLoader> loaders(files.size());
    for (size_t i = 0; i < files.size(); ++i) {
      DE_RETURN_IF_ERROR(SectionLoader::Create(table, files[i]->header(), options, &loaders[i]));
    }
    const bool int32_keys = options.int32_keys && options.keys == nullptr;
    for (const SnapshotReader* file : files) {
      DE_RETURN_IF_ERROR(VerifySections(*file, executor, int32_keys));
    }
    // the files that count: without files before a delta that replaces everything
    std::vector<const SnapshotReader*> applied;
    uint64_t rows = 0;
    for (const ChainSpan& chain : chains) {
      applied.insert(applied.end(), &files[chain.from], files.data() + chain.end);
      rows += files[chain.from]->rows();
    }
    std::vector<OwnedSlots> missing;
    if (options.slots) DE_RETURN_IF_ERROR(MissingSlots(table->layout(), applied, &missing));
    // From here on only I/O and memory can fail. Remove rows before slots are added, so that the
    // old rows need not be copied.
    const uint64_t evicted = table->Stats().evicted;
    if (options.replace) {
      DE_RETURN_IF_ERROR(table->SetInitializer(files.back()->header().initializer));
      DE_RETURN_IF_ERROR(table->Clear());
    }
    Status filled = Guarded([&] {
      return Fill(table, files, chains, loaders, missing, rows, options, executor, report);
    });
    if (!filled.ok()) {
      // A table with some of the rows could be taken for the whole one.
      if (options.replace && table->Clear().ok()) {
        filled.message += ". The table has no rows now; restore it again";
      }
      return filled;
    }
    // A delta would lack tombstones for the rows evicted since: let the next save be a base.
    if (options.chain.empty() || table->Stats().evicted != evicted) return Status::Ok();
    const SnapshotHeader& last = files.back()->header();
    SavePoint point{last.id, last.sequence, 0, table->MarkUses()};
    DE_RETURN_IF_ERROR(table->chains().Cut(&point.generation));
    return table->chains().Add(options.chain, point, true);
  });
}

}  // namespace de::engine
