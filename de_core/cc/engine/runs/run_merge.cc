#include "de_core/cc/engine/runs/run_merge.h"

#include <algorithm>
#include <functional>

namespace de::engine {

Status RunMerge::Add(const RunRef& run, uint64_t hash_begin) {
  const RunFile* const file = run.file.get();
  if (hash_begin > file->hash_last()) return Status::Ok();
  const size_t block = hash_begin <= file->hash_begin() ? 0 : file->BlockOf(hash_begin);
  auto cursor = std::make_unique<Cursor>(file, block, window_);
  DE_RETURN_IF_ERROR(RowConverter::Create(run.layout, layout_, /*slots=*/true, &cursor->converter));
  bool done = false;
  DE_RETURN_IF_ERROR(Load(cursor.get(), &done));
  while (!done && cursor->order.back().first < hash_begin) {
    DE_RETURN_IF_ERROR(Load(cursor.get(), &done));
  }
  if (done) return Status::Ok();
  while (cursor->order[cursor->at].first < hash_begin) ++cursor->at;
  cursors_.push_back(std::move(cursor));
  Push(static_cast<uint32_t>(cursors_.size() - 1));
  return Status::Ok();
}

/// Loads the next block of a cursor.
Status RunMerge::Load(Cursor* cursor, bool* done) {
  DE_RETURN_IF_ERROR(cursor->stream.Next(&cursor->view, done));
  cursor->at = 0;
  if (*done) return Status::Ok();
  const Status listed = cursor->view.List(&cursor->order, &cursor->words);
  return listed.ok() ? Status::Ok() : cursor->run->Corrupt(listed.message);
}

void RunMerge::Push(uint32_t number) {
  const Cursor& cursor = *cursors_[number];
  heads_.emplace_back(cursor.order[cursor.at].first, number);
  std::push_heap(heads_.begin(), heads_.end(), std::greater<>());
}

/// Moves a cursor, which is not in the heap, to its next key.
Status RunMerge::Advance(uint32_t number) {
  Cursor* const cursor = cursors_[number].get();
  if (++cursor->at == cursor->order.size()) {
    bool done = false;
    DE_RETURN_IF_ERROR(Load(cursor, &done));
    if (done) return Status::Ok();
  }
  Push(number);
  return Status::Ok();
}

Status RunMerge::Next(uint64_t hash_last, MergedKey* key, bool* done) {
  if (advance_) DE_RETURN_IF_ERROR(Advance(returned_));
  advance_ = false;
  for (;;) {
    *done = heads_.empty() || heads_.front().first > hash_last;
    if (*done) return Status::Ok();
    const auto [hash, number] = heads_.front();
    std::pop_heap(heads_.begin(), heads_.end(), std::greater<>());
    heads_.pop_back();
    const Cursor& cursor = *cursors_[number];
    const uint32_t entry = cursor.order[cursor.at].second;
    const bool strings = layout_.key_type() == KeyType::kString;
    if (strings && !cursor.view.Text(entry, &text_)) return cursor.run->Corrupt("a bad string");
    bool known = any_ && hash == hash_;
    if (!known) texts_.clear();
    // Different string keys can have the same hash.
    if (strings) known = std::find(texts_.begin(), texts_.end(), text_) != texts_.end();
    if (known) {
      DE_RETURN_IF_ERROR(Advance(number));
      continue;
    }
    if (strings) texts_.emplace_back(text_);
    any_ = true;
    hash_ = hash;
    key->word = cursor.words[entry];
    key->hash = hash;
    key->row = entry < cursor.view.count() ? cursor.view.row(entry) : nullptr;
    key->converter = &cursor.converter;
    key->text = strings ? &text_ : nullptr;
    advance_ = true;
    returned_ = number;
    return Status::Ok();
  }
}

}  // namespace de::engine
