#include "de_core/cc/engine/rows/before_images.h"

#include <algorithm>
#include <exception>
#include <memory>

#include "de_core/cc/engine/base/shard_number.h"
#include "de_core/cc/engine/memory/string_arena.h"

namespace de::engine {
namespace {

constexpr size_t kChunkBytes = size_t{64} << 10;
// Number of copies whose bytes are charged to the budget at once. All writing threads share the
// budget's counter, so a charge for each copy would be slow.
constexpr uint32_t kCopiesPerCharge = 16;

/// Base-2 logarithm of the number of copies in a chunk. A chunk holds one copy if rows are very
/// long.
uint32_t ChunkBits(const RowLayout& layout) noexcept {
  uint32_t bits = 0;
  while ((BeforeImages::BytesACopy(layout) << (bits + 1)) <= kChunkBytes) ++bits;
  return bits;
}

}  // namespace

HeldBudget::HeldBudget(const RowLayout& layout, uint64_t bytes)
    : limit(bytes), memory(BeforeImages::BytesACopy(layout) << ChunkBits(layout)) {}

BeforeImages::BeforeImages(const RowLayout& layout, uint64_t rows, HeldBudget* budget)
    : layout_(layout),
      budget_(budget),
      bytes_a_copy_(BytesACopy(layout)),
      chunk_bits_(ChunkBits(layout)),
      touched_(rows / 64 + 1) {
  static_assert(kBitsOfShard == kShardBits, "the buckets are of one shard");
  newest_.fill(kNone);
}

BeforeImages::~BeforeImages() {
  for (uint32_t i = 0; TextsARow() > 0 && i < count_; ++i) delete[] CopyAt(PlaceOf(i)).texts;
  budget_->memory.Give(chunks_);
  budget_->bytes -= charged_;
}

size_t BeforeImages::BytesACopy(const RowLayout& layout) noexcept {
  return sizeof(Copy) + (layout.stride() + 7) / 8 * 8;
}

size_t BeforeImages::TextsARow() const noexcept {
  return (layout_.key_type() == KeyType::kString ? 1 : 0) +
         (layout_.value_dtype() == DType::kString ? layout_.dim() : 0);
}

void BeforeImages::Touch(uint32_t number) {
  if (number / 64 >= touched_.size()) touched_.resize(number / 64 + 1 + touched_.size() / 4);
  touched_[number / 64] |= uint64_t{1} << (number % 64);
}

void BeforeImages::Charge(uint64_t bytes) noexcept {
  charged_ += bytes;
  const uint64_t now = budget_->bytes += bytes;
  if (now > budget_->peak) budget_->peak = now;
  if (now > budget_->limit) budget_->exceeded = true;
}

/// Returns the memory for the next copy. The caller increases count_ after writing the copy.
char* BeforeImages::Place() {
  if (count_ == kNone) throw std::bad_alloc();
  if (count_ >> chunk_bits_ == chunks_.size()) {
    if (chunks_.size() == chunks_.capacity()) chunks_.reserve(2 * chunks_.size() + 16);
    chunks_.push_back(budget_->memory.Take());
  }
  const uint32_t at_once = std::min(kCopiesPerCharge, 1U << chunk_bits_);
  if (count_ % at_once == 0) Charge(at_once * bytes_a_copy_);
  return PlaceOf(count_);
}

/// Copies the strings of a row, because the table may free them. Returns nullptr if rows have none.
std::string* BeforeImages::TextsOf(const char* row) const {
  const size_t count = TextsARow();
  if (count == 0) return nullptr;
  auto texts = std::make_unique<std::string[]>(count);
  std::string* to = texts.get();
  const auto keep = [&](const char* at) { *to++ = StringArena::Get(StringArena::LoadRef(at)); };
  if (layout_.key_type() == KeyType::kString) keep(row + layout_.key_offset());
  for (size_t i = 0; layout_.value_dtype() == DType::kString && i < layout_.dim(); ++i) {
    keep(row + i * sizeof(StringArena::Ref));
  }
  return texts.release();
}

void BeforeImages::Keep(uint64_t word, uint64_t hash, uint32_t number, const char* row) noexcept {
  if (budget_->lost()) return;
  try {
    char* const place = Place();
    Touch(number);
    uint32_t& newest = newest_[BucketOf(hash)];
    const Copy copy{word, TextsOf(row), newest, 0};
    std::memcpy(place, &copy, sizeof(copy));
    std::memcpy(place + sizeof(copy), row, layout_.stride());
    newest = count_++;
    if (copy.texts == nullptr) return;
    uint64_t bytes = 0;
    for (size_t i = 0; i < TextsARow(); ++i) bytes += sizeof(std::string) + copy.texts[i].size();
    Charge(bytes);
  } catch (const std::exception&) {
    budget_->exceeded = true;
  }
}

void BeforeImages::Inserted(uint32_t number) noexcept {
  if (budget_->lost()) return;
  try {
    Touch(number);
  } catch (const std::exception&) {
    budget_->exceeded = true;
  }
}

void BeforeImages::Renumber(const std::vector<std::pair<uint32_t, uint32_t>>& moves) noexcept {
  try {
    std::vector<uint64_t> old(touched_.size());
    old.swap(touched_);
    for (const auto& [from, to] : moves) {
      if (from / 64 < old.size() && (old[from / 64] >> (from % 64) & 1) != 0) Touch(to);
    }
  } catch (const std::exception&) {
    budget_->exceeded = true;
  }
}

}  // namespace de::engine
