// Keys whose hashes a test or a benchmark chooses.
#ifndef DE_CORE_TESTING_HASH_INVERSE_H_
#define DE_CORE_TESTING_HASH_INVERSE_H_

#include <cstdint>

namespace de::engine::testing {

/// The inverse of Mix64: the word whose hash is `x`.
inline uint64_t UnMix64(uint64_t x) noexcept {
  x ^= (x >> 31) ^ (x >> 62);
  x *= 0x319642b2d24d8ec3ULL;
  x ^= (x >> 27) ^ (x >> 54);
  x *= 0x96de1b173f119089ULL;
  return x ^ (x >> 30) ^ (x >> 60);
}

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_HASH_INVERSE_H_
