#include "de_core/cc/engine/tier/disk_index.h"

#include <cstring>
#include <utility>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/batch/partition.h"

namespace de::engine {

/// The words of string keys, and the entries of the table under these words.
struct DiskIndex::Words {
  std::vector<int64_t> words;    // (keys)
  std::vector<int64_t> checks;   // (keys)
  std::vector<int64_t> entries;  // (keys, 2)
  std::unique_ptr<bool[]> used;  ///< (keys) the table has an entry under the word

  bool IsOf(size_t i) const noexcept { return used[i] && entries[2 * i + 1] == checks[i]; }
};

Status DiskIndex::Create(KeyType key_type, std::unique_ptr<DiskIndex>* index) {
  const bool has_texts = key_type == KeyType::kString;
  TableOptions options;
  options.value_dtype = DType::kInt64;
  options.dim = has_texts ? 2 : 1;
  options.splits_in_turn = true;
  std::unique_ptr<Table> table;
  DE_RETURN_IF_ERROR(Table::Create(std::move(options), &table));
  index->reset(new DiskIndex(has_texts, std::move(table)));
  return Status::Ok();
}

Status DiskIndex::FindWords(const Keys& keys, Executor* executor, Words* words) const {
  words->entries.resize(2 * keys.size);
  words->used = std::make_unique<bool[]>(keys.size);
  for (size_t i = 0; i < keys.size; ++i) {
    words->words.push_back(static_cast<int64_t>(HashBytes(keys.strings[i])));
    words->checks.push_back(static_cast<int64_t>(HashBytes(keys.strings[i], seed_)));
  }
  return table_->Find({words->words.data(), nullptr, keys.size},
                      {reinterpret_cast<char*>(words->entries.data()), nullptr}, words->used.get(),
                      executor);
}

Status DiskIndex::Find(const Keys& keys, Executor* executor, Places* places) const {
  places->packed.resize(keys.size);
  places->found = std::make_unique<bool[]>(keys.size);
  if (!has_texts_) {
    return table_->Find(keys, {reinterpret_cast<char*>(places->packed.data()), nullptr},
                        places->found.get(), executor);
  }
  Words words;
  DE_RETURN_IF_ERROR(FindWords(keys, executor, &words));
  for (size_t i = 0; i < keys.size; ++i) {
    places->found[i] = words.IsOf(i);
    places->packed[i] = words.entries[2 * i];
    if (places->found[i] || others_.empty()) continue;
    const auto other = others_.find(std::string(keys.strings[i]));
    if (other == others_.end()) continue;
    places->found[i] = true;
    places->packed[i] = other->second.place;
  }
  return Status::Ok();
}

Status DiskIndex::Assign(const Keys& keys, const std::vector<int64_t>& places) {
  if (!has_texts_) {
    return table_->InsertOrAssign(keys, {reinterpret_cast<const char*>(places.data()), nullptr},
                                  nullptr);
  }
  Words words;
  DE_RETURN_IF_ERROR(FindWords(keys, nullptr, &words));
  std::vector<int64_t> own, entries;
  for (size_t i = 0; i < keys.size; ++i) {
    const int64_t word = words.words[i];
    const bool is_taken = words.used[i] || (!own.empty() && own.back() == word);
    if (!words.IsOf(i)) {
      std::string text(keys.strings[i]);
      if (is_taken || others_.count(text) != 0) {
        others_[std::move(text)] = {static_cast<uint64_t>(word), places[i]};
        continue;
      }
    }
    own.push_back(word);
    entries.insert(entries.end(), {places[i], words.checks[i]});
  }
  return table_->InsertOrAssign({own.data(), nullptr, own.size()},
                                {reinterpret_cast<const char*>(entries.data()), nullptr}, nullptr);
}

Status DiskIndex::Erase(const Keys& keys) {
  if (!has_texts_) return table_->Erase(keys, nullptr);
  Words words;
  DE_RETURN_IF_ERROR(FindWords(keys, nullptr, &words));
  std::vector<int64_t> own;
  for (size_t i = 0; i < keys.size; ++i) {
    if (words.IsOf(i)) {
      own.push_back(words.words[i]);
    } else if (!others_.empty()) {
      others_.erase(std::string(keys.strings[i]));
    }
  }
  return table_->Erase({own.data(), nullptr, own.size()}, nullptr);
}

Status DiskIndex::Export(ExportCursor* cursor, std::vector<Entry>* entries, uint64_t* last) const {
  const uint64_t begin = cursor->next_hash;
  RowBatch batch;
  DE_RETURN_IF_ERROR(table_->ExportBatch(cursor, &batch));
  entries->clear();
  for (size_t i = 0; i < batch.size(); ++i) {
    Entry entry{batch.words[i], 0};
    std::memcpy(&entry.place, batch.rows.data() + i * batch.layout.stride(), sizeof(entry.place));
    entries->push_back(entry);
  }
  *last = batch.hash_last;
  for (const auto& [text, entry] : others_) {
    const uint64_t hash = Mix64(entry.word);
    if (hash >= begin && hash <= *last) entries->push_back(entry);
  }
  return Status::Ok();
}

uint64_t DiskIndex::bytes() const {
  const TableStats stats = table_->Stats();
  uint64_t bytes = stats.index_bytes + stats.row_bytes + stats.free_bytes;
  for (const auto& [text, entry] : others_) bytes += sizeof(text) + sizeof(entry) + text.size();
  return bytes;
}

}  // namespace de::engine
