#include "de_core/cc/engine/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif
#if defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace de::engine {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78U;  // 0x1edc6f41 with its bits reversed

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (size_t k = 1; k < 8; ++k) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

uint32_t ExtendBytes(uint32_t state, const unsigned char* at, size_t size) noexcept {
  for (; size > 0; --size, ++at) state = (state >> 8) ^ kTables[0][(state ^ *at) & 0xff];
  return state;
}

uint32_t LoadLittle32(const unsigned char* at) noexcept {
  return static_cast<uint32_t>(at[0]) | static_cast<uint32_t>(at[1]) << 8 |
         static_cast<uint32_t>(at[2]) << 16 | static_cast<uint32_t>(at[3]) << 24;
}

uint32_t Portable(uint32_t state, const unsigned char* at, size_t size) noexcept {
  for (; size >= 8; size -= 8, at += 8) {
    const uint32_t low = state ^ LoadLittle32(at);
    const uint32_t high = LoadLittle32(at + 4);
    state = kTables[7][low & 0xff] ^ kTables[6][(low >> 8) & 0xff] ^
            kTables[5][(low >> 16) & 0xff] ^ kTables[4][low >> 24] ^ kTables[3][high & 0xff] ^
            kTables[2][(high >> 8) & 0xff] ^ kTables[1][(high >> 16) & 0xff] ^
            kTables[0][high >> 24];
  }
  return ExtendBytes(state, at, size);
}

#if defined(__x86_64__)
/// The state after kZeros zero bytes is a linear function of the state. So it is the sum of the
/// results for the state's four bytes, which are in the table.
using Shifts = std::array<std::array<uint32_t, 256>, 4>;

template <size_t kZeros>
constexpr Shifts MakeShifts() {
  Shifts shifts{};
  for (uint32_t bit = 0; bit < 32; ++bit) {
    uint32_t state = 1U << bit;
    for (size_t i = 0; i < kZeros; ++i) state = (state >> 8) ^ kTables[0][state & 0xff];
    for (uint32_t byte = 0; byte < 256; ++byte) {
      if ((byte >> bit % 8 & 1) != 0) shifts[bit / 8][byte] ^= state;
    }
  }
  return shifts;
}

template <size_t kZeros>
constexpr Shifts kShifts = MakeShifts<kZeros>();

template <size_t kZeros>
uint32_t ShiftOf(uint32_t state) noexcept {
  const Shifts& shifts = kShifts<kZeros>;
  return shifts[0][state & 0xff] ^ shifts[1][(state >> 8) & 0xff] ^
         shifts[2][(state >> 16) & 0xff] ^ shifts[3][state >> 24];
}

uint64_t WordAt(const unsigned char* from) noexcept {
  uint64_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

/// Takes three streams of kStream bytes at once while there are so many. The instruction has a
/// latency of three cycles, and one can start per cycle. So three streams take the time of one.
template <size_t kStream>
__attribute__((target("sse4.2"))) uint32_t Streams(uint32_t state, const unsigned char** data,
                                                   size_t* left) noexcept {
  const unsigned char* at = *data;
  for (; *left >= 3 * kStream; *left -= 3 * kStream, at += 3 * kStream) {
    uint64_t first = state, second = 0, third = 0;
    for (size_t i = 0; i < kStream; i += 8) {
      first = _mm_crc32_u64(first, WordAt(at + i));
      second = _mm_crc32_u64(second, WordAt(at + kStream + i));
      third = _mm_crc32_u64(third, WordAt(at + 2 * kStream + i));
    }
    state = ShiftOf<kStream>(ShiftOf<kStream>(static_cast<uint32_t>(first)) ^
                             static_cast<uint32_t>(second)) ^
            static_cast<uint32_t>(third);
  }
  *data = at;
  return state;
}

__attribute__((target("sse4.2"))) uint32_t Sse42(uint32_t state, const unsigned char* at,
                                                 size_t size) noexcept {
  state = Streams<4096>(state, &at, &size);
  state = Streams<256>(state, &at, &size);  // for a row of a tier
  uint64_t wide = state;
  for (; size >= 8; size -= 8, at += 8) wide = _mm_crc32_u64(wide, WordAt(at));
  state = static_cast<uint32_t>(wide);
  for (; size > 0; --size, ++at) state = _mm_crc32_u8(state, *at);
  return state;
}
#endif

#if defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
uint32_t Armv8(uint32_t state, const unsigned char* at, size_t size) noexcept {
  for (; size >= 8; size -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    state = __crc32cd(state, word);
  }
  for (; size > 0; --size, ++at) state = __crc32cb(state, *at);
  return state;
}
#endif

}  // namespace

uint32_t Crc32cExtend(uint32_t crc, const void* data, size_t size) noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2") == 0) return Crc32cExtendPortable(crc, data, size);
  return ~Sse42(~crc, static_cast<const unsigned char*>(data), size);
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
  return ~Armv8(~crc, static_cast<const unsigned char*>(data), size);
#else
  return Crc32cExtendPortable(crc, data, size);
#endif
}

uint32_t Crc32cExtendPortable(uint32_t crc, const void* data, size_t size) noexcept {
  return ~Portable(~crc, static_cast<const unsigned char*>(data), size);
}

}  // namespace de::engine
