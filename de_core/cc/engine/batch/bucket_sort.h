// Sorts items by hash, in linear time if the hashes are as good as random.
#ifndef DE_CORE_ENGINE_BUCKET_SORT_H_
#define DE_CORE_ENGINE_BUCKET_SORT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace de::engine {

/// Sorts `items` by `less`, which compares the member `hash` first. All hashes share the leading
/// `shared_bits` (0 to 31). With adversarial hashes it is no slower than std::sort.
template <typename T, typename Less>
void SortByHash(T* items, size_t count, uint32_t shared_bits, const Less& less) {
  constexpr size_t kFew = 64;
  if (count < kFew || count > UINT32_MAX) {
    std::sort(items, items + count, less);
    return;
  }
  // Use as many buckets as items, so that most buckets have at most one item.
  const auto bucket = [&](const T& item) {
    return static_cast<size_t>((((item.hash << shared_bits) >> 32) * count) >> 32);
  };
  std::vector<uint32_t> ends(count + 1);
  for (size_t i = 0; i < count; ++i) ++ends[bucket(items[i]) + 1];
  for (size_t i = 1; i <= count; ++i) ends[i] += ends[i - 1];
  std::vector<T> sorted(count);
  // ends[b] is now where bucket b begins. This loop advances it to the bucket's end.
  for (size_t i = 0; i < count; ++i) sorted[ends[bucket(items[i])]++] = items[i];
  size_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    if (ends[i] - begin > 1) std::sort(sorted.data() + begin, sorted.data() + ends[i], less);
    begin = ends[i];
  }
  std::copy(sorted.begin(), sorted.end(), items);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_BUCKET_SORT_H_
