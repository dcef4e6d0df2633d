// Computes the shard of a key. A table has kShards shards, each with its own lock.
#ifndef DE_CORE_ENGINE_SHARD_NUMBER_H_
#define DE_CORE_ENGINE_SHARD_NUMBER_H_

#include <cstdint>
#include <string_view>

namespace de::engine {

/// The top bits of a key's hash are its shard number.
inline constexpr uint32_t kShardBits = 4;
inline constexpr uint32_t kShards = 1U << kShardBits;

inline uint32_t ShardOfHash(uint64_t hash) noexcept {
  return static_cast<uint32_t>(hash >> (64 - kShardBits));
}

inline uint64_t FirstHashOf(uint32_t shard) noexcept {
  return uint64_t{shard} << (64 - kShardBits);
}
inline uint64_t LastHashOf(uint32_t shard) noexcept {
  return FirstHashOf(shard) | (~uint64_t{0} >> kShardBits);
}

/// A key as the index sees it.
struct IndexKey {
  uint64_t word;                  ///< the integer key, or HashBytes of the string key
  uint64_t hash;                  ///< Mix64(word)
  const std::string_view* bytes;  ///< the string key; nullptr for an integer key
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SHARD_NUMBER_H_
