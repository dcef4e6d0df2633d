#include "de_core/cc/engine/held_rows.h"

#include <algorithm>
#include <exception>

#include "de_core/cc/engine/shard.h"

namespace de::engine {

HeldRows::~HeldRows() {
  static_assert(kBitsOfShard == kShardBits, "the buckets are of one shard");
  for (const Bucket& bucket : buckets_) budget_->bytes -= bucket.bytes;
}

/// Whether this is the first touch of a row.
bool HeldRows::Touch(uint32_t number) {
  if (IsTouched(number)) return false;
  if (number / 64 >= touched_.size()) touched_.resize(number / 64 + 1 + touched_.size() / 4);
  touched_[number / 64] |= uint64_t{1} << (number % 64);
  return true;
}

void HeldRows::Keep(uint64_t word, uint64_t hash, uint32_t number, const char* row) noexcept {
  if (budget_->lost()) return;
  try {
    if (!Touch(number)) return;
    Bucket& bucket = buckets_[BucketOf(hash)];
    uint64_t bytes = sizeof(word) + layout_.stride();
    const auto keep = [&](const char* at) {
      bucket.texts.emplace_back(StringArena::Get(Shard::LoadRef(at)));
      bytes += sizeof(std::string) + bucket.texts.back().size();
    };
    bucket.words.push_back(word);
    bucket.rows.insert(bucket.rows.end(), row, row + layout_.stride());
    if (layout_.key_type() == KeyType::kString) keep(row + layout_.key_offset());
    for (size_t i = 0; layout_.value_dtype() == DType::kString && i < layout_.dim(); ++i) {
      keep(row + i * sizeof(StringArena::Ref));
    }
    bucket.bytes += bytes;
    const uint64_t now = budget_->bytes += bytes;
    if (now > budget_->peak) budget_->peak = now;
    if (now > budget_->limit) budget_->exceeded = true;
  } catch (const std::exception&) {
    budget_->exceeded = true;
  }
}

void HeldRows::Inserted(uint32_t number) noexcept {
  if (budget_->lost()) return;
  try {
    Touch(number);
  } catch (const std::exception&) {
    budget_->exceeded = true;
  }
}

void HeldRows::Renumber(const std::vector<std::pair<uint32_t, uint32_t>>& moves) noexcept {
  try {
    std::vector<uint64_t> old;
    old.swap(touched_);
    for (const auto& [from, to] : moves) {
      if (from / 64 < old.size() && (old[from / 64] >> (from % 64) & 1) != 0) Touch(to);
    }
  } catch (const std::exception&) {
    budget_->exceeded = true;
  }
}

void HeldRows::Free(uint64_t below, Freed* freed) noexcept {
  const size_t end = below == ~uint64_t{0} ? buckets_.size() : BucketOf(below);
  try {
    for (; freed_ < end; ++freed_) {
      Bucket& bucket = buckets_[freed_];
      if (bucket.words.empty()) continue;
      freed->emplace_back();
      std::swap(freed->back(), bucket);
      budget_->bytes -= freed->back().bytes;
    }
  } catch (const std::exception&) {  // no memory for the list: they are freed with the rest
  }
}

}  // namespace de::engine
