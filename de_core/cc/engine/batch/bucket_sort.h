// Sorting by hashes, which are as good as random, in a time in proportion to their number.
#ifndef DE_CORE_ENGINE_BUCKET_SORT_H_
#define DE_CORE_ENGINE_BUCKET_SORT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace de::engine {

/// Sorts `items` by `less`, which compares their member `hash` first. Their hashes share the
/// leading `shared_bits` (0 to 31). Whoever chooses keys by their hashes makes it no slower than
/// std::sort.
template <typename T, typename Less>
void SortByHash(T* items, size_t count, uint32_t shared_bits, const Less& less) {
  constexpr size_t kFew = 64;
  if (count < kFew || count > UINT32_MAX) {
    std::sort(items, items + count, less);
    return;
  }
  // As many buckets as items, so that most have one or none.
  const auto bucket = [&](const T& item) {
    return static_cast<size_t>((((item.hash << shared_bits) >> 32) * count) >> 32);
  };
  std::vector<uint32_t> ends(count + 1);
  for (size_t i = 0; i < count; ++i) ++ends[bucket(items[i]) + 1];
  for (size_t i = 1; i <= count; ++i) ends[i] += ends[i - 1];
  std::vector<T> sorted(count);
  // Turns each bucket's begin, one place before its end, into its end.
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
