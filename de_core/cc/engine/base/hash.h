// The hash functions of a table. They must never change and must agree on all builds and machines:
// snapshot files are sorted by Mix64, and ShardOfKey decides which device, process or file has a
// key.
#ifndef DE_CORE_ENGINE_HASH_H_
#define DE_CORE_ENGINE_HASH_H_

#include <cstdint>
#include <cstring>
#include <string_view>

namespace de::engine {

inline constexpr uint64_t kMixFactors[2] = {0xbf58476d1ce4e5b9ULL, 0x94d049bb133111ebULL};

/// A bijection of 64-bit words. Every output bit depends on every input bit. Source: David
/// Stafford's variant 13 of MurmurHash3's finalizer, as used by SplitMix64.
inline uint64_t Mix64(uint64_t x) noexcept {
  x ^= x >> 30;
  x *= kMixFactors[0];
  x ^= x >> 27;
  x *= kMixFactors[1];
  x ^= x >> 31;
  return x;
}

/// The inverse of Mix64: the word whose hash is `x`.
inline uint64_t UnMix64(uint64_t x) noexcept {
  x ^= (x >> 31) ^ (x >> 62);
  x *= 0x319642b2d24d8ec3ULL;
  x ^= (x >> 27) ^ (x >> 54);
  x *= 0x96de1b173f119089ULL;
  return x ^ (x >> 30) ^ (x >> 60);
}

/// High 64 bits of the 128-bit product.
inline uint64_t MulHigh64(uint64_t a, uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(a) * b) >> 64);
}

/// Maps a 64-bit hash to [0, n) by its high bits, without a division.
/// Source: D. Lemire, "Fast random integer generation in an interval" (2019).
inline uint64_t ReduceHigh(uint64_t hash, uint64_t n) noexcept { return MulHigh64(hash, n); }

/// Maps the low 32 bits of a hash to [0, n).
inline uint32_t ReduceLow32(uint64_t hash, uint32_t n) noexcept {
  return static_cast<uint32_t>((static_cast<uint64_t>(static_cast<uint32_t>(hash)) * n) >> 32);
}

/// Returns the 64-bit hash of a byte string. The index stores it as the word of a string key; keys
/// with equal hashes are distinguished by their bytes. With another `seed`, returns a hash that no
/// index stores as a word.
inline uint64_t HashBytes(std::string_view bytes, uint64_t seed = 0x9e3779b97f4a7c15ULL) noexcept {
  uint64_t hash = seed ^ (bytes.size() * 0xff51afd7ed558ccdULL);
  const char* data = bytes.data();
  size_t left = bytes.size();
  const auto word = [](const char* from, size_t count) noexcept {
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "hashes and files are little-endian");
    uint64_t value = 0;
    std::memcpy(&value, from, count);
    return value;
  };
  while (left >= 8) {
    hash = Mix64(hash ^ word(data, 8)) + 0x9e3779b97f4a7c15ULL;
    data += 8;
    left -= 8;
  }
  if (left > 0) hash = Mix64(hash ^ word(data, left)) + 0x9e3779b97f4a7c15ULL;
  return hash;
}

/// Returns which of `shards` devices, processes or files has a key. `word` is the integer key, or
/// HashBytes of the string key. The result is independent of the hash bits that place the key
/// inside a table.
inline uint32_t ShardOfKey(uint64_t word, uint32_t shards) noexcept {
  return static_cast<uint32_t>(ReduceHigh(Mix64(word ^ 0xd6e8feb86659fd93ULL), shards));
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_HASH_H_
