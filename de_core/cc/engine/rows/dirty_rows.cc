#include "de_core/cc/engine/rows/dirty_rows.h"

#include <algorithm>
#include <exception>

namespace de::engine {
namespace {

template <typename T>
void SortUnique(std::vector<T>* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
}

template <typename T>
void AppendTo(std::vector<T>* all, const std::vector<T>& more) {
  all->insert(all->end(), more.begin(), more.end());
}

void SetBit(std::vector<uint64_t>* bits, uint32_t row) {
  if (row / 64 >= bits->size()) bits->resize(row / 64 + 1 + bits->size() / 4);
  (*bits)[row / 64] |= uint64_t{1} << (row % 64);
}

bool HasBit(const std::vector<uint64_t>& bits, uint32_t row) noexcept {
  return row / 64 < bits.size() && (bits[row / 64] >> (row % 64) & 1) != 0;
}

}  // namespace

/// Drops what this generation has recorded, and treats all rows as changed in it.
void DirtyRows::Generation::GiveUp() noexcept {
  everything = true;
  bits = {};
  words = {};
  erased = {};
  erased_texts = {};
}

void DirtyRows::MarkFirst(uint64_t word, uint32_t row) noexcept {
  Generation& now = generations_.back();
  if (now.everything) return;
  try {
    SetBit(&now.bits, row);
    if (now.overflow) return;
    // The log may hold four keys of 64 bits for each 64 rows: four bits per row.
    if (now.words.size() >= std::max(kLeastLog, 4 * now.bits.size())) {
      now.overflow = true;
      now.words = {};
    } else {
      now.words.push_back(word);
    }
  } catch (const std::exception&) {
    now.GiveUp();
  }
}

void DirtyRows::MarkErased(uint64_t word, uint32_t row, const std::string_view* text) noexcept {
  // Another key may get this row number. Clear the row's bits, so that a change of that key is
  // logged too, even after generations are merged.
  for (Generation& each : generations_) {
    if (HasBit(each.bits, row)) each.bits[row / 64] &= ~(uint64_t{1} << (row % 64));
  }
  List(word, text, &generations_.back());
}

void DirtyRows::MarkMoved(uint64_t word, uint32_t row, const std::string_view* text) noexcept {
  const bool changed = std::any_of(generations_.begin(), generations_.end(),
                                   [&](const Generation& each) { return HasBit(each.bits, row); });
  if (!changed) return;
  generations_.back().has_moved = true;
  MarkErased(word, row, text);
}

/// Adds a key to a generation's erased keys.
void DirtyRows::List(uint64_t word, const std::string_view* text, Generation* generation) noexcept {
  if (generation->everything) return;
  try {
    if (text == nullptr) {
      generation->erased.push_back(word);
    } else {
      generation->erased_texts.emplace_back(word, *text);
    }
    Shrink(generation);
  } catch (const std::exception&) {
    generation->GiveUp();
  }
}

/// Deduplicates erased keys, because keys may be inserted and erased repeatedly.
void DirtyRows::Shrink(Generation* generation) {
  const auto size = [&] { return generation->erased.size() + generation->erased_texts.size(); };
  if (size() < generation->erased_limit) return;
  SortUnique(&generation->erased);
  SortUnique(&generation->erased_texts);
  generation->erased_limit = std::max(kLeastLog, 2 * size());
  // A table with high turnover may erase more keys than it holds. Then saving all rows is cheaper.
  // A tier may hold many times the rows of the table.
  if (!generation->has_moved && size() > std::max(16 * kLeastLog, 16 * generation->bits.size()))
    generation->GiveUp();
}

void DirtyRows::MarkCleared() noexcept {
  // Every delta now contains all rows, because it includes this generation. So the records of
  // earlier generations are useless too.
  for (Generation& generation : generations_) generation.GiveUp();
}

void DirtyRows::Renumber(const std::vector<std::pair<uint32_t, uint32_t>>& moves) noexcept {
  for (Generation& generation : generations_) {
    if (generation.everything) continue;
    try {
      std::vector<uint64_t> bits;
      for (const auto& [from, to] : moves) {
        if (HasBit(generation.bits, from)) SetBit(&bits, to);
      }
      generation.bits = std::move(bits);
    } catch (const std::exception&) {
      generation.GiveUp();
    }
  }
}

void DirtyRows::Cut(uint64_t generation) { generations_.emplace_back(generation); }

DirtyKeys DirtyRows::Since(uint64_t since) const {
  DirtyKeys all;
  for (const Generation& generation : generations_) {
    if (generation.number < since) continue;
    all.everything = all.everything || generation.everything;
    all.by_bits = all.by_bits || generation.overflow;
    AppendTo(&all.words, generation.words);
    AppendTo(&all.erased, generation.erased);
    AppendTo(&all.erased_texts, generation.erased_texts);
  }
  SortUnique(&all.erased);
  SortUnique(&all.erased_texts);
  return all;
}

bool DirtyRows::IsDirty(uint32_t row, uint64_t since) const noexcept {
  for (const Generation& generation : generations_) {
    if (generation.number < since) continue;
    if (generation.everything || HasBit(generation.bits, row)) return true;
  }
  return false;
}

void DirtyRows::Generation::Absorb(Generation* later) noexcept {
  try {
    if (!everything) Merge(later);
  } catch (const std::exception&) {
    GiveUp();
  }
}

void DirtyRows::Generation::Merge(Generation* later) {
  if (later->everything) return GiveUp();
  if (bits.size() < later->bits.size()) bits.resize(later->bits.size());
  for (size_t i = 0; i < later->bits.size(); ++i) bits[i] |= later->bits[i];
  overflow = overflow || later->overflow;
  AppendTo(&words, later->words);
  const size_t most = std::max(kLeastLog, 4 * bits.size());
  if (words.size() > most) SortUnique(&words);  // a key may have changed in both generations
  if (words.size() > most) overflow = true;
  if (overflow) words = {};
  AppendTo(&erased, later->erased);
  AppendTo(&erased_texts, later->erased_texts);
  has_moved = has_moved || later->has_moved;
  Shrink(this);
}

void DirtyRows::Keep(const std::vector<uint64_t>& marks) {
  std::vector<Generation> kept;
  kept.reserve(generations_.size());  // nothing after this throws, so no change gets lost
  for (Generation& generation : generations_) {
    const bool last = &generation == &generations_.back();
    // True if a mark is in (after, number]. Then a delta begins between the two generations, and
    // they must stay separate.
    const auto marked = [&](uint64_t after, uint64_t number) {
      const auto at = std::upper_bound(marks.begin(), marks.end(), after);
      return at != marks.end() && *at <= number;
    };
    const bool asked = !marks.empty() && marks.front() <= generation.number;
    if (!asked) {
      if (last) kept.emplace_back(generation.number);
    } else if (kept.empty() || marked(kept.back().number, generation.number)) {
      kept.push_back(std::move(generation));
    } else {
      kept.back().Absorb(&generation);
    }
  }
  generations_ = std::move(kept);
}

uint64_t DirtyRows::bytes() const noexcept {
  uint64_t bytes = 0;
  for (const Generation& generation : generations_) {
    bytes += sizeof(uint64_t) * (generation.bits.capacity() + generation.words.capacity() +
                                 generation.erased.capacity());
    for (const auto& each : generation.erased_texts) bytes += sizeof(each) + each.second.size();
  }
  return bytes;
}

}  // namespace de::engine
