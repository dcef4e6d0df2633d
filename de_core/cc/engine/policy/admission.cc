#include "de_core/cc/engine/policy/admission.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/base/shard_number.h"

namespace de::engine {
namespace {

constexpr size_t kFirstPlaces = 16;
constexpr uint64_t kLargestBloomCount = 255;
constexpr uint64_t kLargestCount = 0xffffffffULL;
// A table's filters are in the header of a snapshot, which has at most 4 GiB.
constexpr double kMostBloomBytes = 4000.0 * (1 << 20);

/// The header of one filter in the bytes that Save writes. The filter's counts follow it.
struct PartHeader {
  uint64_t kind;
  uint64_t size;  // number of keys (exact) or counters (Bloom)
};

// Returns the greatest number of keys, of `capacity`, to expect in one shard: an even share and
// four standard deviations.
uint64_t ShareOf(uint64_t capacity, uint32_t shards) {
  const double even = static_cast<double>(capacity) / shards;
  return static_cast<uint64_t>(std::ceil(even + 4 * std::sqrt(even)));
}

constexpr uint32_t kProbes = 4;  // counters per key in a Bloom filter

/// Returns the number of counters of a shard's Bloom filter.
double CountersOf(const AdmissionOptions& options, uint32_t shards) {
  // A key shares all its k counters with other keys with the probability (1 - e^(-k n / m))^k,
  // for n keys and m counters. Solve for m / n, the counters per key.
  const double part = std::pow(options.error, 1.0 / kProbes);
  const double counters = -static_cast<double>(kProbes) / std::log1p(-part);
  return std::ceil(counters * static_cast<double>(ShareOf(options.capacity, shards))) + kProbes;
}

/// Returns the position of a key's counter number `probe`, in a filter of `size` counters.
size_t BloomPlace(uint64_t hash, uint32_t probe, size_t size) noexcept {
  const uint64_t word = Mix64(hash + (probe + 1) * 0x9e3779b97f4a7c15ULL);
  return static_cast<size_t>(ReduceHigh(word, size));
}

/// Returns a key's count in a Bloom filter, which is never less than the true count.
uint8_t CountOf(const std::vector<uint8_t>& bloom, uint64_t hash) noexcept {
  uint8_t least = kLargestBloomCount;
  for (uint32_t probe = 0; probe < kProbes; ++probe) {
    least = std::min(least, bloom[BloomPlace(hash, probe, bloom.size())]);
  }
  return least;
}

}  // namespace

Status AdmissionOptions::Check() const {
  const bool counts = kind == Kind::kCount || kind == Kind::kBloom;
  const uint64_t largest = kind == Kind::kBloom ? kLargestBloomCount : kLargestCount;
  if (counts && (min_count < 1 || min_count > largest)) {
    return Status::InvalidArgument("min_count must be from 1 to " + std::to_string(largest) +
                                   ". Received: min_count=" + std::to_string(min_count));
  }
  if (kind == Kind::kBloom && (capacity < 1 || capacity > (uint64_t{1} << 40))) {
    return Status::InvalidArgument("capacity must be from 1 to 2^40. Received: capacity=" +
                                   std::to_string(capacity));
  }
  if (kind == Kind::kBloom && !(error > 0 && error < 1)) {
    return Status::InvalidArgument("error must be between 0 and 1. Received: error=" +
                                   std::to_string(error));
  }
  if (kind == Kind::kBloom && CountersOf(*this, kShards) * kShards > kMostBloomBytes) {
    return Status::InvalidArgument(
        "the filter must have at most 4000 MiB in each shard of a table, because a snapshot's "
        "header holds it: lower capacity, raise error, or use more devices. Received: capacity=" +
        std::to_string(capacity) + ", error=" + std::to_string(error) +
        ", bytes=" + std::to_string(static_cast<uint64_t>(CountersOf(*this, kShards) * kShards)));
  }
  if (kind == Kind::kProbability && !(probability > 0 && probability <= 1)) {
    return Status::InvalidArgument("probability must be above 0 and at most 1. Received: " +
                                   std::to_string(probability));
  }
  return Status::Ok();
}

AdmissionFilter::AdmissionFilter(const AdmissionOptions& options, uint32_t shards)
    : options_(options) {
  using Kind = AdmissionOptions::Kind;
  if (options_.kind == Kind::kProbability) {
    const double scaled = std::ldexp(options_.probability, 64);
    chance_ = scaled >= std::ldexp(1.0, 64) ? ~uint64_t{0} : static_cast<uint64_t>(scaled);
  }
  if (options_.kind == Kind::kBloom) {
    bloom_.assign(static_cast<size_t>(CountersOf(options_, shards)), 0);
  }
}

bool AdmissionFilter::Admit(uint64_t word, uint64_t hash, int64_t step) {
  switch (options_.kind) {
    case AdmissionOptions::Kind::kAll:
      return true;
    case AdmissionOptions::Kind::kCount:
      return CountExactly(word, hash);
    case AdmissionOptions::Kind::kBloom:
      return CountInBloom(hash);
    case AdmissionOptions::Kind::kProbability:
      break;
  }
  const uint64_t of_step =
      Mix64(options_.seed + 0x9e3779b97f4a7c15ULL) + static_cast<uint64_t>(step);
  return Mix64(hash ^ Mix64(of_step)) < chance_ || chance_ == ~uint64_t{0};
}

size_t AdmissionFilter::Slot(uint64_t word, uint64_t hash) const noexcept {
  const size_t mask = words_.size() - 1;
  size_t at = static_cast<size_t>(hash) & mask;
  while (counts_[at] != 0 && words_[at] != word) at = (at + 1) & mask;
  return at;
}

bool AdmissionFilter::CountExactly(uint64_t word, uint64_t hash) {
  if (options_.min_count <= 1) return true;
  if (4 * (pending_ + 1) > 3 * words_.size()) Grow();
  const size_t at = Slot(word, hash);
  if (counts_[at] == 0) {
    words_[at] = word;
    counts_[at] = 1;
    ++pending_;
    return false;
  }
  if (counts_[at] + uint64_t{1} < options_.min_count) {
    ++counts_[at];
    return false;
  }
  Remove(at);
  return true;
}

void AdmissionFilter::Grow() {
  std::vector<uint64_t> words(std::max(kFirstPlaces, words_.size() * 2));
  std::vector<uint32_t> counts(words.size());
  words.swap(words_);
  counts.swap(counts_);
  for (size_t i = 0; i < words.size(); ++i) {
    if (counts[i] == 0) continue;
    const size_t at = Slot(words[i], Mix64(words[i]));
    words_[at] = words[i];
    counts_[at] = counts[i];
  }
}

// Frees place `at`. Moves later entries up, so that no search for them ends at the free place.
void AdmissionFilter::Remove(size_t at) noexcept {
  const size_t mask = words_.size() - 1;
  --pending_;
  for (size_t next = (at + 1) & mask; counts_[next] != 0; next = (next + 1) & mask) {
    const size_t home = static_cast<size_t>(Mix64(words_[next])) & mask;
    if (((next - home) & mask) < ((next - at) & mask)) continue;
    words_[at] = words_[next];
    counts_[at] = counts_[next];
    at = next;
  }
  counts_[at] = 0;
}

bool AdmissionFilter::CountInBloom(uint64_t hash) {
  uint8_t least = CountOf(bloom_, hash);
  for (const std::vector<uint8_t>& each : older_) least = std::max(least, CountOf(each, hash));
  // Raise only the smallest counters of the key. So each counter stays at least the true count of
  // its keys (C. Estan, G. Varghese, "New directions in traffic measurement and accounting", 2002:
  // conservative update).
  for (uint32_t probe = 0; probe < kProbes && least < kLargestBloomCount; ++probe) {
    uint8_t& counter = bloom_[BloomPlace(hash, probe, bloom_.size())];
    counter = std::max(counter, static_cast<uint8_t>(least + 1));
  }
  return least + uint64_t{1} >= options_.min_count;
}

void AdmissionFilter::Forget(uint64_t word, uint64_t hash) noexcept {
  if (words_.empty()) return;
  if (const size_t at = Slot(word, hash); counts_[at] != 0) Remove(at);
}

void AdmissionFilter::Clear() {
  words_ = {};
  counts_ = {};
  pending_ = 0;
  std::fill(bloom_.begin(), bloom_.end(), uint8_t{0});
  older_ = {};
}

size_t AdmissionFilter::bytes() const noexcept {
  size_t bytes = words_.capacity() * sizeof(uint64_t) + counts_.capacity() * sizeof(uint32_t) +
                 bloom_.capacity();
  for (const std::vector<uint8_t>& each : older_) bytes += each.capacity();
  return bytes;
}

void AdmissionFilter::Save(std::string* out) const {
  const PartHeader header{static_cast<uint64_t>(options_.kind),
                          bloom_.empty() ? pending_ : bloom_.size()};
  out->append(reinterpret_cast<const char*>(&header), sizeof(header));
  out->append(reinterpret_cast<const char*>(bloom_.data()), bloom_.size());
  for (size_t i = 0; i < words_.size(); ++i) {
    if (counts_[i] == 0) continue;
    out->append(reinterpret_cast<const char*>(&words_[i]), sizeof(uint64_t));
    out->append(reinterpret_cast<const char*>(&counts_[i]), sizeof(uint32_t));
  }
  for (const std::vector<uint8_t>& each : older_) {
    const PartHeader of_older{header.kind, each.size()};
    out->append(reinterpret_cast<const char*>(&of_older), sizeof(of_older));
    out->append(reinterpret_cast<const char*>(each.data()), each.size());
  }
}

void AdmissionFilter::TakeBloom(std::string_view counters) {
  std::vector<uint8_t> taken(counters.begin(), counters.end());
  if (taken.size() == bloom_.size()) {
    for (size_t i = 0; i < taken.size(); ++i) bloom_[i] = std::max(bloom_[i], taken[i]);
    return;
  }
  // Several tables may have merged the same filter and saved it. Keep it once.
  const bool known = std::find(older_.begin(), older_.end(), taken) != older_.end();
  if (!known) older_.push_back(std::move(taken));
}

Status AdmissionFilter::Merge(std::string_view part, uint32_t shard_index, uint32_t shard_count) {
  constexpr size_t kEntry = sizeof(uint64_t) + sizeof(uint32_t);
  PartHeader header{};
  const auto damaged = [&] {
    return Status::DataLoss(
        "the counts of keys without a row are damaged: " + std::to_string(part.size()) +
        " bytes do not hold " + std::to_string(header.size) + " of them");
  };
  if (part.size() < sizeof(header)) return damaged();
  std::memcpy(&header, part.data(), sizeof(header));
  const bool same_kind = header.kind == static_cast<uint64_t>(options_.kind);
  if (header.kind == static_cast<uint64_t>(AdmissionOptions::Kind::kBloom)) {
    std::vector<std::string_view> filters;
    for (std::string_view rest = part; !rest.empty(); rest.remove_prefix(header.size)) {
      if (rest.size() < sizeof(header)) return damaged();
      std::memcpy(&header, rest.data(), sizeof(header));
      rest.remove_prefix(sizeof(header));
      if (header.size == 0 || rest.size() < header.size) return damaged();
      filters.push_back(rest.substr(0, header.size));
    }
    for (size_t i = 0; same_kind && i < filters.size(); ++i) TakeBloom(filters[i]);
    return Status::Ok();
  }
  part.remove_prefix(sizeof(header));
  if (part.size() / kEntry != header.size || part.size() % kEntry != 0) return damaged();
  if (!same_kind) return Status::Ok();
  for (size_t i = 0; i < header.size; ++i) {
    uint64_t word;
    uint32_t count;
    std::memcpy(&word, part.data() + i * kEntry, sizeof(word));
    std::memcpy(&count, part.data() + i * kEntry + sizeof(word), sizeof(count));
    if (count == 0) return damaged();
    if (shard_count > 1 && ShardOfKey(word, shard_count) != shard_index) continue;
    if (4 * (pending_ + 1) > 3 * words_.size()) Grow();
    const size_t at = Slot(word, Mix64(word));
    pending_ += counts_[at] == 0;
    words_[at] = word;
    counts_[at] = std::max(counts_[at], count);
  }
  return Status::Ok();
}

}  // namespace de::engine
