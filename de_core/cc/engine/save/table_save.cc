#include "de_core/cc/engine/save/table_save.h"

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/save/save_pipeline.h"

namespace de::engine {

Status TableSave::Begin(TableBackend* table, SaveOptions options,
                        std::unique_ptr<TableSave>* save) {
  if (options.delta && options.chain.empty()) {
    return Status::InvalidArgument("a delta needs a chain of saves; name it. Received: chain=''");
  }
  if (options.keys != nullptr && !options.chain.empty()) {
    return Status::InvalidArgument("a save of chosen keys must not name a chain. Received: chain=" +
                                   options.chain);
  }
  uint64_t expired = 0;  // erase expired rows first: lookups treat them as absent
  DE_RETURN_IF_ERROR(table->EvictExpired(&expired));
  return Guarded([&] {
    std::unique_ptr<TableSave> begun(new TableSave(table, std::move(options)));
    DE_RETURN_IF_ERROR(begun->Start());
    *save = std::move(begun);
    return Status::Ok();
  });
}

TableSave::~TableSave() {
  source_->End();
  if (cut_) table_->chains().Abandon();
}

Status TableSave::Start() {
  SavePoint parent;
  if (options_.delta) DE_RETURN_IF_ERROR(table_->chains().Last(options_.chain, &parent));
  point_.id = options_.id;
  point_.micros = table_->MarkUses();
  if (!options_.chain.empty()) {
    // Start a new generation of changes before rows are read. So a change that is made while rows
    // are read is in the next delta, even if this file has it already.
    DE_RETURN_IF_ERROR(table_->chains().Cut(&point_.generation));
    cut_ = true;
  }
  // Ask again after Cut: from now on the table keeps all recorded changes, even if another save of
  // the chain ends.
  if (options_.delta) {
    DE_RETURN_IF_ERROR(table_->chains().Last(options_.chain, &parent));
    point_.sequence = parent.sequence + 1;
    report_.parent = parent.id;
    report_.sequence = point_.sequence;
  }
  SaveSelection selection;
  selection.changes_only = options_.delta;
  selection.since = parent.generation;
  selection.current = point_.generation;
  if (!options_.values_only) selection.used_since = parent.micros;
  selection.keys = options_.keys;
  selection.keep = options_.keep;
  return source_->Begin(std::move(selection), options_.held_bytes, options_.undisturbed);
}

Status TableSave::Done() {
  if (!cut_) return Status::Ok();
  DE_RETURN_IF_ERROR(table_->chains().Add(options_.chain, point_, options_.commit));
  cut_ = false;
  return Status::Ok();
}

Status TableSave::Write(ByteSink* sink, Executor* executor) {
  return Guarded([&] {
    SnapshotHeader header(source_->layout());
    header.kind = options_.delta ? SnapshotKind::kDelta : SnapshotKind::kBase;
    header.replaces = options_.delta && source_->everything();
    header.values_only = options_.values_only;
    header.initializer = source_->initializer();
    header.id = point_.id;
    header.parent = report_.parent;
    header.sequence = point_.sequence;
    header.created_micros = options_.created_micros;
    header.metadata = options_.metadata;
    if (!options_.values_only) table_->SaveState(&header.metadata);
    std::unique_ptr<SnapshotWriter> writer;
    DE_RETURN_IF_ERROR(SnapshotWriter::Create(sink, header, options_.store_as, &writer));

    const size_t helpers = executor == nullptr ? 0 : executor->threads();
    SavePipeline pipeline(source_.get(), writer.get(), options_.rest, helpers);
    DE_RETURN_IF_ERROR(pipeline.Run(executor));
    report_.held_peak = source_->held_peak();
    source_->End();
    report_.longest_hold = source_->longest_hold_seconds();
    DE_RETURN_IF_ERROR(writer->Finish());
    report_.rows = writer->rows();
    report_.tombstones = writer->tombstones();
    report_.bytes = writer->bytes();
    report_.error = writer->error();
    return Status::Ok();
  });
}

}  // namespace de::engine
