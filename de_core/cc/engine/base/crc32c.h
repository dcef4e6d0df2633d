// CRC-32C (Castagnoli), the checksum of every snapshot block.
#ifndef DE_CORE_ENGINE_CRC32C_H_
#define DE_CORE_ENGINE_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace de::engine {

/// The implementations. All give the same result; they differ in speed.
enum class Crc32cKind : uint8_t {
  kPortable,  ///< slicing-by-8 tables
  kSse42,     ///< x86-64 `crc32` instruction, chosen at run time
  kArmv8,     ///< AArch64 `crc32cx`, where the compiler's baseline has it
};

/// Whether `kind` was compiled in and this machine can run it.
bool Crc32cSupported(Crc32cKind kind) noexcept;

/// Extends a checksum by data[0, size). `crc` is the checksum of the bytes before `data`, 0 if
/// there are none. Uses the fastest implementation that this machine supports.
uint32_t Crc32cExtend(uint32_t crc, const void* data, size_t size) noexcept;

/// Like Crc32cExtend, with the given implementation, or with kPortable if it is unsupported. For
/// tests.
uint32_t Crc32cExtendWith(Crc32cKind kind, uint32_t crc, const void* data, size_t size) noexcept;

inline uint32_t Crc32c(const void* data, size_t size) noexcept {
  return Crc32cExtend(0, data, size);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_CRC32C_H_
